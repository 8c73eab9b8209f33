// Every head over the whole set: a table to sort, and how the sorted statistic is distributed in each head.

let sorting = { column: 0, order: null }; // order: null (as the heads are counted), "descending" or "ascending"

const MEDIAN = 2; // of the five numbers that packing.over_set keeps of each distribution
const short = (x) => (x === null ? "–" : Number(x).toPrecision(3).replace("-", "−"));

// Built anew only where the set, or the language, is another.
function tellSet() {
  const box = $(".set"), set = prop("over_set"), fits = set && set.checkpoint === view.checkpoint;
  const says = JSON.stringify([fits && set.checkpoint, fits && set.count, t("layer")]);
  if (box.dataset.says === says) return;
  box.dataset.says = says;
  box.hidden = !fits;
  if (!fits) return box.replaceChildren();
  const details = make("details"), scroll = make("div", "scroll");
  details.open = Boolean(box.querySelector("details")?.open);
  const title = t("set_title", { count: set.count.toLocaleString("en"), length: set.length });
  details.append(make("summary", "", title), make("p", "", t("set_how")), scroll);
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  scroll.append(make("table"));
  box.replaceChildren(details);
  fillTable();
}

const rowsOf = ({ quantiles }) =>
  quantiles.flatMap((heads, layer) => heads.map((statistics, head) => ({ layer, head, statistics })));

function sorted(rows) {
  const { column, order } = sorting, value = (row) => row.statistics[column][MEDIAN];
  if (!order) return rows;
  const least = order === "descending" ? -Infinity : Infinity; // what is not known stands last
  const keyed = rows.map((row) => [value(row) ?? least, row]);
  return keyed.sort(([a], [b]) => (order === "descending" ? b - a : a - b)).map(([, row]) => row);
}

function fillTable() {
  const set = prop("over_set"), table = $(".set table"), rows = rowsOf(set);
  sorting.column = Math.min(sorting.column, set.statistics.length - 1);
  const headings = make("tr");
  headings.append(heading(t("set_head"), null), make("th", "spread", t("set_spread", { statistic: set.statistics[sorting.column].title })));
  headings.lastChild.scope = "col";
  set.statistics.forEach(({ title, meaning }, k) => headings.append(heading(title, k, meaning)));
  const ranges = set.statistics.map((_, k) => range(rows.map(({ statistics }) => statistics[k][MEDIAN])));
  const around = range(rows.flatMap(({ statistics }) => statistics[sorting.column]));
  const head = make("thead"), body = make("tbody");
  head.append(headings);
  for (const row of sorted(rows)) body.append(tableRow(row, ranges, around));
  table.replaceChildren(head, body);
  markRow();
}

function heading(title, column, meaning = "") {
  const cell = make("th"), button = make("button", "", title), mine = column === null ? !sorting.order : sorting.column === column;
  cell.scope = "col";
  button.type = "button";
  button.title = meaning;
  cell.setAttribute("aria-sort", mine && sorting.order ? sorting.order : "none");
  button.addEventListener("click", () => {
    const again = mine && sorting.order === "descending";
    sorting = column === null ? { ...sorting, order: null } : { column, order: again ? "ascending" : "descending" };
    fillTable();
    $(`.set th:nth-child(${column === null ? 1 : column + 3}) button`).focus();
  });
  cell.append(button);
  return cell;
}

function range(values) {
  const known = values.filter((x) => x !== null);
  return { low: Math.min(...known), high: Math.max(...known) };
}

const share = (x, { low, high }) => (x === null || high === low ? 0 : (x - low) / (high - low));

function tableRow({ layer, head, statistics }, ranges, around) {
  const row = make("tr"), name = make("th"), place = { layer, head };
  name.scope = "row";
  name.append(action(t("layer_head", place), "go", () => select(panels.find((mine) => same(mine, place)))));
  row.append(name, spread(statistics[sorting.column], around, place));
  statistics.forEach((quantiles, k) => {
    const cell = make("td", "", short(quantiles[MEDIAN]));
    cell.style.setProperty("--share", `${Math.round(22 * share(quantiles[MEDIAN], ranges[k]))}%`);
    row.append(cell);
  });
  Object.assign(row.dataset, { layer, head });
  return row;
}

// From the 1st to the 99th percentile a line, the middle half thick, the median a stroke; a dot is this sequence.
function spread(quantiles, around, { layer, head }) {
  const cell = make("td", "spread"), box = make("i"), at = (x) => `${100 * share(x, around)}%`;
  cell.setAttribute("aria-hidden", "true");
  if (quantiles.some((x) => x === null)) return cell;
  const part = (name, from, to) => {
    const bar = make("b", name);
    bar.style.left = at(from);
    bar.style.right = `calc(100% - ${at(to)})`;
    box.append(bar);
  };
  part("all", quantiles[0], quantiles[4]);
  part("half", quantiles[1], quantiles[3]);
  part("median", quantiles[MEDIAN], quantiles[MEDIAN]);
  box.append(Object.assign(make("b", "here"), { hidden: true }));
  box.dataset.low = around.low;
  box.dataset.high = around.high;
  cell.append(box);
  return cell;
}

// What changes with each sequence: the dots. And which row is the large head's.
function markRow() {
  const usual = usualNow();
  for (const row of element.querySelectorAll(".set tbody tr")) {
    const { layer, head } = row.dataset, mine = same(state.selected, { layer: Number(layer), head: Number(head) });
    row.classList.toggle("selected", mine);
    row.querySelector(".go").setAttribute("aria-pressed", mine);
    const dot = row.querySelector(".here");
    if (!dot) continue;
    const text = usual && usual.statistics[sorting.column].values[layer][head], value = Number(text?.replace("−", "-"));
    const { low, high } = dot.parentNode.dataset;
    dot.hidden = !usual || !Number.isFinite(value);
    dot.style.left = `${Math.min(100, Math.max(0, 100 * share(value, { low: Number(low), high: Number(high) })))}%`;
  }
}

// From the large head back to its row.
function toTable() {
  $(".set details").open = true;
  const { layer, head } = state.selected, row = $(`.set tr[data-layer="${layer}"][data-head="${head}"]`);
  row.querySelector(".go").focus({ preventScroll: true });
  row.scrollIntoView({ behavior: "smooth", block: "center" });
}
