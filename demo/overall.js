// The large head over the whole set: what it is worth, its mean map, how far it looks, and how a statistic is distributed.

let looked = 0; // the statistic whose distribution is drawn
const spreads = {}; // the pictures: {map, offsets, distribution}

const setNow = () => (view && prop("over_set")?.checkpoint === view.checkpoint ? prop("over_set") : null);
const column = (set, place, name) => set.means[place.layer][place.head][set.columns.findIndex((one) => one.name === name)];

function overall(chosen) {
  const set = setNow(), box = make("section", "overall");
  if (!set) return box;
  looked = Math.min(looked, set.statistics.length - 1);
  box.append(make("h3", "", t("set_of_head", { count: set.count.toLocaleString("en"), length: set.length })));
  box.append(make("p", "worth", worth(set, chosen)));
  const row = make("div", "spreads"), list = make("select", "small");
  for (const [k, { title }] of set.statistics.entries()) list.append(Object.assign(make("option", "", title), { value: k }));
  list.value = looked;
  list.setAttribute("aria-label", t("statistic"));
  list.addEventListener("change", () => {
    looked = Number(list.value);
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
  paintMap(spreads.map, { values: means, from, tokens, top, both: false });
  spreads.map.setAttribute("aria-label", `${t("mean_map")}, ${t("largest", { weight: top.toFixed(4) })}`);
  const profile = offsets(means, from, T), most = profile.indexOf(Math.max(...profile));
  const label = `${t("offset_profile")}, ${t("largest", { weight: profile[most].toFixed(4) })} (${most - T + 1})`;
  paintBars(spreads.offsets, { heights: profile, ticks: [1 - T, 0, T - 1].map(String), level: 1 / T, label });
  const { layer, head } = chosen, [low, high] = set.ends[layer][head][looked];
  const text = usualNow()?.statistics[looked]?.values[layer][head], here = Number(text?.replace("−", "-").replace(",", ""));
  const mark = text && Number.isFinite(here) ? share(here, { low, high }) : null;
  const { title } = set.statistics[looked], said = mark === null ? title : `${title}, ${t("here", { value: text })}`;
  const ends = low === null ? [] : [short(low), short(high)];
  paintBars(spreads.distribution, { heights: set.histogram[layer][head][looked], ticks: ends, mark, label: said, counts: true });
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

// Bars side by side; `level` is a dashed line, `mark` (0 to 1) a stroke between the ends.
function paintBars(canvas, { heights, ticks, level = null, mark = null, label, counts = false }) {
  const { side, ratio, color, fontFamily } = lookOf(canvas), height = canvas.clientHeight, style = getComputedStyle(canvas);
  const context = canvas.getContext("2d"), foot = 16, head = 12, room = height - foot - head, top = Math.max(...heights, level ?? 0);
  canvas.width = Math.round(side * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.setAttribute("aria-label", label);
  context.scale(ratio, ratio);
  context.fillStyle = style.getPropertyValue("--arc");
  const width = side / heights.length, y = (value) => head + room * (1 - value / (top || 1));
  heights.forEach((value, i) => context.fillRect(i * width, y(value), Math.max(1, width - 1), head + room - y(value)));
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
