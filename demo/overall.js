// The large head over the whole set: what it is worth, its mean map, how far it looks, and how a statistic is distributed.

let looked = 0; // the statistic whose distribution is drawn
const spreads = {}; // the pictures: {map, offsets, distribution}

const column = (set, place, name) => set.means[place.layer][place.head][set.columns.findIndex((one) => one.name === name)];

function overall(chosen) {
  const set = setNow(), box = make("section", "overall");
  if (!set) return box;
  looked = Math.min(looked, set.statistics.length - 1);
  box.append(make("h3", "", t("set_of_head", { count: set.count.toLocaleString("en"), length: set.length })));
  box.append(make("p", "worth", worth(set, chosen)));
  const row = make("div", "spreads"), statistics = set.statistics.map(({ title }, k) => [k, title]);
  const list = listOf(t("statistic"), statistics, looked, (k) => {
    looked = Number(k);
    paintOverall();
  });
  for (const [name, caption] of [["map", t("mean_map")], ["offsets", t("offset_profile")], ["distribution", list]]) {
    const figure = make("figure", `spread-${name}`), head = make("figcaption"), canvas = make("canvas");
    head.append(caption);
    canvas.setAttribute("role", "img");
    figure.append(head, canvas);
    row.append(figure);
    spreads[name] = canvas;
  }
  row.lastChild.append(make("p", "classes"));
  box.append(row);
  return box;
}

// Of a column that has no distribution (-1) none is drawn: the one before stays.
function look(statistic) {
  if (statistic < 0) return;
  looked = statistic;
  if ($(".spread-distribution select")) $(".spread-distribution select").value = looked;
  paintOverall();
}

function worth(set, chosen) {
  const lost = column(set, chosen, "accuracy_drop"), loss = column(set, chosen, "loss_increase");
  return t("worth_over_set", { lost: (100 * lost).toFixed(1).replace("-", "−"), loss: signed(loss, 3) });
}

function paintOverall() {
  const set = setNow(), chosen = state.selected;
  if (!set || !chosen || !spreads.map?.clientWidth) return;
  const T = set.length, size = T * T, from = (chosen.layer * set.means[0].length + chosen.head) * size;
  const means = meansOf(set), top = largest(means, from, size);
  const tokens = Array.from({ length: T }, (_, i) => (i % 3 ? "" : String(i))); // two digits are wider than a cell
  paintMap(spreads.map, { values: means, from, tokens, keys: tokens, top, both: false });
  spreads.map.setAttribute("aria-label", `${t("mean_map")}, ${t("largest", { weight: top.toFixed(4) })}`);
  const profile = offsets(means, from, T), most = profile.indexOf(Math.max(...profile));
  const label = `${t("offset_profile")}, ${t("largest", { weight: profile[most].toFixed(4) })} (${most - T + 1})`;
  paintBars(spreads.offsets, { layers: [profile], ticks: [1 - T, 0, T - 1].map(String), level: 1 / T, label });
  paintDistribution(set, chosen);
}

// How the statistic is distributed, a colour for each class of sequences; and where this sequence stands.
function paintDistribution(set, { layer, head }) {
  const studies = studiesOf(set), { name, title } = set.statistics[looked];
  $(".classes").replaceChildren(...(studies ? classesLine(studies, { layer, head }, name) : [t("waiting")]));
  if (!studies) return;
  const [low, high] = studies.ends[layer][head][looked];
  const { text, value } = usualOf(looked, { layer, head }), mark = Number.isFinite(value) ? share(value, { low, high }) : null;
  const said = mark === null ? title : `${title}, ${t("here", { value: text })}`;
  const ends = low === null ? [] : [short(low), short(high)];
  paintBars(spreads.distribution, { layers: studies.histogram[layer][head][looked], ticks: ends, mark, label: said, counts: true });
}

// Which colour is which class, of how many sequences; and how far apart the two lie that differ most.
function classesLine(studies, { layer, head }, name) {
  const counts = studies.histogram[layer][head][looked].map((bins) => bins.reduce((a, b) => a + b, 0));
  const keys = studies.classes.map((one, c) => {
    const key = make("span", "class", `${named(one)}: ${counts[c].toLocaleString("en")}`), swatch = make("i");
    swatch.style.background = `var(--class-${c % CLASSES})`;
    key.prepend(swatch);
    return key;
  });
  const far = differencesOf(studies).filter((row) => row.layer === layer && row.head === head && row.statistic === name);
  const [most] = inOrder(far.filter(({ group_a }) => group_a.startsWith(LABEL)), ({ cohens_d }) => Math.abs(cohens_d), "descending");
  if (!most) return keys;
  const pair = t("a_minus_b", { a: groupName(most.group_a), b: groupName(most.group_b) });
  return [...keys, make("span", "apart", `${pair}: ${short(most.difference)}, d = ${short(most.cohens_d)}`)];
}

// The mean weight on the key k tokens away, k from 1 − T to T − 1.
function offsets(maps, from, T) {
  return Array.from({ length: 2 * T - 1 }, (_, i) => {
    const k = i - T + 1, first = Math.max(0, -k), count = T - Math.abs(k);
    let sum = 0;
    for (let query = first; query < first + count; query++) sum += maps[from + query * T + query + k];
    return sum / count;
  });
}

const CLASSES = 4; // colours, after which they come again

// Bars side by side, several layers of them over each other; `level` is a dashed line, `mark` (0 to 1) a stroke between
// the ends.
function paintBars(canvas, { layers, ticks, level = null, mark = null, label, counts = false }) {
  const { side, ratio, color, fontFamily } = lookOf(canvas), height = canvas.clientHeight, style = getComputedStyle(canvas);
  const context = canvas.getContext("2d"), foot = 16, head = 12, room = height - foot - head, top = Math.max(...layers.flat(), level ?? 0);
  canvas.width = Math.round(side * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.setAttribute("aria-label", label);
  context.scale(ratio, ratio);
  const width = side / layers[0].length, y = (value) => head + room * (1 - value / (top || 1));
  layers.forEach((heights, c) => {
    context.fillStyle = context.strokeStyle = style.getPropertyValue(layers.length > 1 ? `--class-${c % CLASSES}` : "--arc");
    context.globalAlpha = layers.length > 1 ? 0.45 : 1;
    heights.forEach((value, i) => context.fillRect(i * width, y(value), Math.max(1, width - 1), head + room - y(value)));
    context.globalAlpha = 1;
    if (layers.length > 1) outline(context, heights, width, y);
  });
  context.fillStyle = context.strokeStyle = color;
  context.font = `11px ${fontFamily}`;
  context.textBaseline = "alphabetic";
  context.fillRect(0, head + room, side, 1);
  ticks.forEach((text, i) => {
    context.textAlign = i === 0 ? "left" : i === ticks.length - 1 ? "right" : "center";
    context.fillText(text, (i / Math.max(1, ticks.length - 1)) * side, height - 3);
  });
  context.textAlign = "left";
  context.fillText(counts ? top.toLocaleString("en") : short(top), 0, head - 3);
  if (level !== null) {
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(0, y(level));
    context.lineTo(side, y(level));
    context.stroke();
    context.setLineDash([]);
  }
  if (mark === null) return;
  context.fillStyle = style.getPropertyValue("--here");
  context.fillRect(Math.min(side - 2, Math.max(0, mark * side - 1)), head, 2, room);
}

// Along the tops, where there is something.
function outline(context, heights, width, y) {
  context.lineWidth = 1.5;
  context.beginPath();
  heights.forEach((value, i) => {
    if (!value && !heights[i - 1] && !heights[i + 1]) return;
    if (i && (heights[i - 1] || value)) context.lineTo(i * width, y(value));
    else context.moveTo(i * width, y(value));
    context.lineTo((i + 1) * width, y(value));
  });
  context.stroke();
}
