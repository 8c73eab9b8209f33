// The studies of the whole set: boxes to open, what they ask the server for, and the way from them to a head and back.
//
// Event: study {checkpoint} asks for what opened boxes show; it comes as props.studies, as packing.studies makes it.

let back = null; // the way from the large head to where it was chosen: {title, to}, or null
const boxes = {}; // selector: {says, fill} of each box that stands
const asking = { of: null, since: 0 }; // for the studies of which checkpoint
const LOST = 10_000; // ms after which an answer that has not come is asked for again

const known = (set) => (set && !set.why ? set : null);
const setNow = () => (view && prop("over_set")?.checkpoint === view.checkpoint ? known(prop("over_set")) : null);

// The same, also while weights on the way through training are shown.
function setOfTraining() {
  const set = known(prop("over_set"));
  return set && view.steps.some((step) => view.checkpoint === `${set.checkpoint}@${step}`) ? set : setNow();
}

// What has come of it; what has not is asked for.
function studiesOf(set) {
  const found = prop("studies");
  if (found?.checkpoint === set.checkpoint) return found;
  if (asking.of !== set.checkpoint || performance.now() - asking.since > LOST) {
    Object.assign(asking, { of: set.checkpoint, since: performance.now() });
    trigger("study", { checkpoint: set.checkpoint });
  }
  return null;
}

function gotStudies() {
  for (const [selector, { fill }] of Object.entries(boxes)) {
    if ($(`${selector} details`)?.open) fill($(`${selector} .inside`));
  }
  if (state.selected) paintOverall();
}

// Builds a box anew where the set or the language is another. `fill` draws what is inside, once it is open.
function tellBox(selector, set, title, how, fill) {
  const box = $(selector), says = set ? JSON.stringify([set.checkpoint, set.count, title, how]) : "";
  if (boxes[selector]?.says === says) return;
  const open = Boolean(box.querySelector("details")?.open);
  boxes[selector] = { says, fill };
  box.hidden = !set;
  if (!set) return box.replaceChildren();
  const details = make("details");
  details.append(make("summary", "", title), make("p", "", how), make("div", "inside"));
  details.addEventListener("toggle", () => details.open && openBox(selector));
  box.replaceChildren(details);
  if (open) openBox(selector);
}

function openBox(selector) {
  const inside = $(`${selector} .inside`);
  $(`${selector} details`).open = true;
  if (!inside.firstChild || inside.querySelector(".waiting")) boxes[selector].fill(inside);
}

function tellStudies() {
  tellSet();
  tellDifferences();
  tellWorth();
  tellGrowth();
}

const waitingLine = () => make("p", "waiting", t("waiting"));

// ---------------------------------------------------------------- to a head and back

function goTo(place, from = null) {
  select(panels.find((mine) => same(mine, place)), from);
}

// Of a box: `find` says what in it stands for the head.
const fromBox = (selector, title, find) => ({
  title,
  to: () => {
    openBox(selector);
    const found = find() || $(`${selector} summary`), target = found.querySelector(".go") || found;
    target.focus({ preventScroll: true });
    found.scrollIntoView({ behavior: "smooth", block: "center" });
  },
});

// ---------------------------------------------------------------- tables

function scrolling(label, ...inside) {
  const box = make("div", "scroll");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", label);
  box.append(...inside);
  return box;
}

// order: null, "ascending" or "descending".
function heading(title, { order = null, meaning = "", sort }) {
  const cell = make("th"), button = make("button", "", title);
  cell.scope = "col";
  button.type = "button";
  button.title = meaning;
  cell.setAttribute("aria-sort", order || "none");
  button.addEventListener("click", sort);
  cell.append(button);
  return cell;
}

// By the number that `value` gives; what is not known (null) stands last.
function inOrder(rows, value, order) {
  const least = order === "descending" ? -Infinity : Infinity, keyed = rows.map((row) => [value(row) ?? least, row]);
  return keyed.sort(([a], [b]) => (order === "descending" ? b - a : a - b) || 0).map(([, row]) => row);
}

// A row of a head: a click anywhere in it shows the head, and its button is for keys.
function headRow(place, onOpen) {
  const row = make("tr"), name = make("th"), button = make("button", "small go", t("layer_head", place));
  button.type = "button";
  name.scope = "row";
  name.append(button);
  row.append(name);
  row.addEventListener("click", onOpen);
  Object.assign(row.dataset, { layer: place.layer, head: place.head });
  return row;
}

// What stands for the large head, everywhere.
function markHead() {
  for (const one of element.querySelectorAll(".study [data-layer]")) {
    const { layer, head } = one.dataset, mine = same(state.selected, { layer: Number(layer), head: Number(head) });
    one.classList.toggle("selected", mine);
    (one.matches("button") ? one : one.querySelector(".go"))?.setAttribute("aria-pressed", mine);
  }
}

function listOf(label, options, value, onChange) {
  const list = make("select", "small");
  for (const [key, text] of options) list.append(Object.assign(make("option", "", text), { value: key }));
  list.value = value;
  list.setAttribute("aria-label", label);
  list.addEventListener("change", () => onChange(list.value));
  return list;
}

const byHead = (numbers) => numbers.flatMap((heads, layer) => heads.map((values, head) => ({ layer, head, values })));
const titleOf = (set, name) => [...set.columns, ...set.statistics].find((one) => one.name === name).title;
