// One head, large: as a heat map or as arcs. Runs after grid.js, and starts the whole.

let largeCanvas = null;

function select(mine) {
  state.selected = mine && { layer: mine.layer, head: mine.head };
  buildLarge();
  paint();
  if (mine) $(".large").scrollIntoView({ behavior: "smooth", block: "nearest" });
}

function buildLarge() {
  const box = $(".large"), chosen = state.selected;
  box.hidden = !chosen;
  largeCanvas = null;
  if (!chosen) return box.replaceChildren();
  const title = make("h2", "", t("layer_head", chosen)), picture = make("div", "picture"), canvas = make("canvas");
  picture.append(canvas);
  largeCanvas = canvas;
  canvas.addEventListener("pointermove", (event) => point({ ...chosen, canvas }, cellUnder(canvas, event, view.T)));
  canvas.addEventListener("pointerleave", () => point(null));
  const close = action(t("close"), "close", () => select(null));
  const top = make("div", "top-row");
  top.append(title, close);
  const beside = make("div", "beside");
  beside.append(picture, make("div", "statistics"));
  const { layer, head } = chosen, set = view.means && props.over_set;
  const ends = set ? [tryRow(t("sharpest"), set.sharpest[layer][head]), tryRow(t("flattest"), set.flattest[layer][head])] : [];
  box.replaceChildren(top, beside, ...ends, saveRow(t("save_head"), ["png", "svg"], chosen));
  paintStatistics();
}

// The statistics of the large head, each on its distribution: the strip is the percentiles from 0 to 100.
function paintStatistics() {
  const box = $(".statistics"), usual = usualNow();
  if (!box) return;
  if (!usual) return box.classList.add("stale"); // until those of this sequence are there
  box.classList.remove("stale");
  const { layer, head } = state.selected, table = make("table");
  const known = usual.statistics.some(({ percentiles }) => percentiles[layer][head] !== null);
  const headings = make("tr");
  const titles = { statistic: t("statistic"), value: t("value"), ...(known && { percentile: t("percentile") }) };
  for (const [name, title] of Object.entries(titles)) {
    headings.append(Object.assign(make("th", name, title), { scope: "col", colSpan: name === "percentile" ? 2 : 1 }));
  }
  table.append(headings);
  for (const { title, meaning, values, percentiles } of usual.statistics) {
    const row = make("tr"), name = make("th", "", title), at = percentiles[layer][head];
    name.scope = "row";
    name.title = meaning;
    row.append(name, make("td", "value", values[layer][head]));
    if (known) row.append(make("td", "percentile", at === null ? "–" : at.toFixed(1)), strip(at));
    row.classList.toggle("odd", at !== null && (at < usual.ordinary[0] || at > usual.ordinary[1]));
    table.append(row);
  }
  box.replaceChildren(table, make("p", "", usual.note));
}

function strip(at) {
  const cell = make("td", "strip"), line = make("i");
  if (at !== null) {
    line.append(make("b"));
    line.style.setProperty("--at", `${at}%`);
    cell.append(line);
  }
  cell.setAttribute("aria-hidden", "true");
  return cell;
}

function paintLarge() {
  if (!largeCanvas) return;
  const from = offset(view, state.selected), own = largest(shown.values, from, view.T * view.T);
  const top = state.shared ? largest(shown.values) : own;
  paintMap(largeCanvas, { ...shown, from, tokens: view.tokens, top });
}

function spoken() {
  draw();
  buildLarge();
  paintLarge();
}

let width = 0;
function resized() {
  if (root.clientWidth !== width) paint();
  width = root.clientWidth;
}

new ResizeObserver(resized).observe(root);
document.fonts.ready.then(paint);
new MutationObserver(paint).observe(document.body, { attributeFilter: ["class"] }); // light and dark
watch(["value", "over_set"], draw);
watch("words", spoken);
watch("effects", tellEffects);
watch("usual", tellUsual);
draw();
