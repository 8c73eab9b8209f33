// Every head through training: its statistics and what it is worth at each snapshot, as lines.

const growing = { statistic: null, worth: "loss_increase" }; // what is drawn; statistic null: the large head's
const GROWTH = ["statistic", "worth"], TALL = 230, HUES = 6; // px; colours, after which they come again
const DASHES = ["", "7 3", "2 3", "9 3 2 3"]; // of the layers, likewise
const MARGIN = { left: 54, right: 10, top: 10, bottom: 22 };

function tellGrowth() {
  const set = setOfTraining(), trained = set && view.steps.length > 1 ? set : null;
  tellBox(".growth", trained, t("growth_title"), t("growth_how"), fillGrowth);
  paintGrowth();
}

const svg = (tag, attributes = {}) => {
  const one = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  return one;
};

function fillGrowth(inside) {
  const set = setOfTraining(), studies = set && studiesOf(set);
  if (!studies) return inside.replaceChildren(waitingLine());
  if (studies.steps.length < 2) return inside.replaceChildren(make("p", "", t("growth_none")));
  const row = make("div", "spreads"), worth = set.columns.filter(({ name }) => studies.effects.includes(name));
  const lists = { statistic: set.columns.filter((one) => !worth.includes(one)), worth };
  growing.statistic ??= set.statistics[looked].name;
  for (const kind of GROWTH) {
    const figure = make("figure", `growth-${kind}`), caption = make("figcaption"), canvas = svg("svg", { role: "img", height: TALL });
    const options = lists[kind].map(({ name, title }) => [name, title]);
    caption.append(listOf(kind === "worth" ? t("worth_title") : t("statistic"), options, growing[kind], (name) => {
      growing[kind] = name;
      paintGrowth();
    }));
    canvas.addEventListener("pointermove", (event) => pointLine(lineUnder(kind, event)));
    canvas.addEventListener("pointerleave", () => pointLine(null));
    canvas.addEventListener("click", (event) => openLine(lineUnder(kind, event)));
    figure.append(caption, canvas);
    row.append(figure);
  }
  const said = make("p", "said"), legend = make("div", "legend-heads");
  legend.setAttribute("role", "group");
  legend.setAttribute("aria-label", t("growth_title"));
  for (const { layer, head } of byHead(set.means)) legend.append(legendButton({ layer, head }));
  inside.replaceChildren(row, said, legend);
  paintGrowth();
}

function legendButton(place) {
  const button = action(t("layer_head", place), "line-of", () => openLine(place)), sample = svg("svg", { width: 26, height: 8, "aria-hidden": "true" });
  sample.append(svg("line", { x1: 0, x2: 26, y1: 4, y2: 4, ...strokeOf(place) }));
  button.prepend(sample);
  button.addEventListener("pointerenter", () => pointLine(place));
  button.addEventListener("pointerleave", () => pointLine(null));
  button.addEventListener("focus", () => pointLine(place));
  Object.assign(button.dataset, place);
  return button;
}

const strokeOf = ({ layer, head }) => ({ class: `hue-${head % HUES}`, "stroke-dasharray": DASHES[layer % DASHES.length] });

function openLine(place) {
  const find = () => $(`.growth button[data-layer="${place.layer}"][data-head="${place.head}"]`);
  if (place) goTo(place, fromBox(".growth", () => t("growth_title"), find));
}

// ---------------------------------------------------------------- the lines

const drawnLines = {}; // kind: {x, y, lines: [{layer, head, values}], steps, title} as they are drawn

// Even ratios are even lengths; from 0 to the first step is as far as from one step to the next, about.
function places(steps) {
  const first = steps[1], gap = Math.log(Math.max(steps.at(-1) / first, 10)) / Math.max(steps.length - 2, 1);
  return steps.map((step) => (step ? gap + Math.log(step / first) : 0));
}

function paintGrowth() {
  const set = setOfTraining(), studies = set && prop("studies")?.checkpoint === set.checkpoint ? prop("studies") : null;
  if (!studies || !$(".growth svg")) return;
  for (const kind of GROWTH) paintLines(kind, set, studies);
  markHead();
}

function paintLines(kind, set, studies) {
  const canvas = $(`.growth-${kind} svg`), wide = canvas.parentNode.clientWidth, { steps } = studies;
  const says = JSON.stringify([wide, growing[kind], view.checkpoint, set.checkpoint, set.count]);
  if (!wide || canvas.dataset.says === says) return; // an edit changes nothing here
  canvas.dataset.says = says;
  const name = growing[kind], k = set.columns.findIndex((one) => one.name === name), uniform = studies.uniform[k];
  const lines = byHead(set.means).map(({ layer, head }) => ({ layer, head, values: studies.training.map((at) => at[layer][head][k]) }));
  const around = range([...lines.flatMap(({ values }) => values), uniform, kind === "worth" ? 0 : null]), at = places(steps);
  const x = at.map((one) => MARGIN.left + (one / at.at(-1)) * (wide - MARGIN.left - MARGIN.right));
  const y = (value) => TALL - MARGIN.bottom - share(value, around) * (TALL - MARGIN.top - MARGIN.bottom);
  const title = titleOf(set, name), parts = [];
  canvas.setAttribute("viewBox", `0 0 ${wide} ${TALL}`);
  canvas.setAttribute("aria-label", `${title}, ${t("growth_title")}: ${short(around.low)} … ${short(around.high)}`);
  Object.assign(canvas.dataset, around);
  for (const value of [around.low, (around.low + around.high) / 2, around.high]) {
    parts.push(svg("line", { class: "rule", x1: MARGIN.left, x2: wide - MARGIN.right, y1: y(value), y2: y(value) }));
    parts.push(tickText(short(value), MARGIN.left - 5, y(value) + 4, "end"));
  }
  const now = view.checkpoint === set.checkpoint ? steps.length - 1 : steps.findIndex((step) => view.checkpoint.endsWith(`@${step}`));
  if (now >= 0) parts.push(svg("line", { class: "now", x1: x[now], x2: x[now], y1: MARGIN.top, y2: TALL - MARGIN.bottom }));
  let free = 0; // up to where there are numbers under the axis
  steps.forEach((step, i) => {
    const room = 4 * String(step).length + 4, last = x.at(-1) - 4 * String(steps.at(-1)).length - 4;
    if (i && i < steps.length - 1 && (x[i] - room < free || x[i] + room > last)) return;
    parts.push(tickText(String(step), x[i], TALL - 6, i === steps.length - 1 ? "end" : "middle"));
    free = x[i] + room;
  });
  if (uniform !== null) parts.push(svg("line", { class: "uniform", x1: x[0], x2: x.at(-1), y1: y(uniform), y2: y(uniform) }));
  for (const { layer, head, values } of lines) {
    const points = values.map((value, i) => (value === null ? null : `${x[i].toFixed(1)},${y(value).toFixed(1)}`)).filter(Boolean);
    const line = svg("polyline", { points: points.join(" "), ...strokeOf({ layer, head }) });
    Object.assign(line.dataset, { layer, head });
    parts.push(line);
  }
  canvas.replaceChildren(...parts);
  drawnLines[kind] = { x, y, lines, steps, title };
}

function tickText(text, x, y, anchor) {
  const one = svg("text", { x, y, "text-anchor": anchor });
  one.textContent = text;
  return one;
}

// The line nearest to the pointer, at the nearest snapshot.
function lineUnder(kind, event) {
  const { x, y, lines, steps, title } = drawnLines[kind], box = event.currentTarget.getBoundingClientRect();
  const [left, top] = [event.clientX - box.left, event.clientY - box.top];
  const nearest = (numbers, to) => numbers.reduce((best, one, i) => (Math.abs(one - to) < Math.abs(numbers[best] - to) ? i : best), 0);
  const i = nearest(x, left), heights = lines.map(({ values }) => (values[i] === null ? Infinity : y(values[i])));
  const { layer, head, values } = lines[nearest(heights, top)];
  return { layer, head, told: `${title} ${short(values[i])}, ${t("after_steps", { step: steps[i] })}` };
}

// Lights a head's lines, and says what is pointed at.
function pointLine(place) {
  for (const one of element.querySelectorAll(".growth polyline")) {
    one.classList.toggle("pointed", same(place, { layer: Number(one.dataset.layer), head: Number(one.dataset.head) }));
  }
  $(".growth .said").textContent = place ? [t("layer_head", place), place.told].filter(Boolean).join(": ") : "";
}
