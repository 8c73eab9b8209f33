// One head, large: as a heat map or as arcs, beside what it is compared with.

let pictures = []; // what stands large: {canvas, caption, of} with `of` as picturesOf makes it

function select(mine, from = null) {
  back = from;
  state.selected = mine && { layer: mine.layer, head: mine.head };
  buildLarge();
  paint();
  if (mine) $(".large").scrollIntoView({ behavior: "smooth", block: "nearest" });
}

// The head as it is; or that of the other reading, as it is, and the difference.
function picturesOf(chosen) {
  const plain = quantityNow() === "beside" ? "weights" : quantityNow();
  const size = view.R * view.T, from = offset(view, chosen);
  const other = comparedNow();
  if (!other || !hasHead(other, chosen)) {
    const top = state.shared ? largest(shown.values) : largest(shown.values, from, size);
    return [{ of: view, caption: "", ...shown, from, top }];
  }
  const name = QUANTITIES[plain].there(other) ? plain : "weights", { of, both } = QUANTITIES[name];
  const sides = [other, view].map((one) => ({ of: one, values: of(one), both, from: offset(one, chosen) }));
  const tops = sides.map(({ of, values, from }) => (state.shared ? largest(values) : largest(values, from, of.R * of.T)));
  const found = sides.map((side, i) => ({ ...side, caption: captions()[i], top: Math.max(...tops) }));
  if (other.R !== view.R || other.T !== view.T) return found;
  const [before, now] = sides, values = new Float32Array(size);
  for (let i = 0; i < size; i++) values[i] = now.values[now.from + i] - before.values[before.from + i];
  return [...found, { of: view, caption: captions()[2], values, both: true, from: 0, top: largest(values) }];
}

function buildLarge() {
  const box = $(".large"), chosen = state.selected;
  if (!view) return;
  markHead();
  box.hidden = !chosen;
  pictures = [];
  token = null;
  if (!chosen) return box.replaceChildren();
  const title = make("h2", "", placeName(chosen)), close = action(t("close"), "close", () => select(null));
  const as = choice(t("as"), state.as, [["map", t("as_map")], ["arcs", t("as_arcs")]], (answer) => {
    state.as = answer;
    buildLarge();
    paintLarge();
    $(".large input:checked").focus();
  });
  const top = make("div", "top-row"), beside = make("div", "beside");
  top.append(title, as, close);
  if (back) close.before(action(t("back_to", { title: back.title() }), "back", back.to));
  if (!$(".set").hidden) close.before(action(t("in_table"), "to-table", toTable));
  const drawn = make("div", "pictures"), said = make("p", "said");
  said.setAttribute("role", "status");
  said.hidden = state.as !== "arcs";
  picturesOf(chosen).forEach((_, i) => drawn.append(picture(i, chosen)));
  drawn.classList.toggle("several", pictures.length > 1);
  const left = make("div", "drawn");
  left.append(drawn, said);
  beside.append(left, make("div", "statistics"));
  beside.classList.toggle("wide", pictures.length > 1);
  const { layer, head } = chosen, set = view.means && setNow();
  const ends = set ? [tryRow(t("sharpest"), set.sharpest[layer][head]), tryRow(t("flattest"), set.flattest[layer][head])] : [];
  box.replaceChildren(top, beside, saveRow(t("save_head"), ["png", "svg", "pdf"], chosen), ...ends, overall(chosen));
  paintStatistics();
}

function picture(i, chosen) {
  const figure = make("figure", "picture"), canvas = make("canvas"), caption = make("figcaption");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  const mine = { ...chosen, canvas };
  const arcs = () => state.as === "arcs", now = () => pictures[i].of.of === view;
  const leave = () => (arcs() ? pointToken(null) : point(null));
  canvas.addEventListener("pointermove", (event) => {
    if (arcs()) pointToken(tokenUnder(canvas, event, pictures[i].of.of));
    else if (now()) point(mine, cellUnder(canvas, event, view));
  });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return leave();
    if (!arcs()) return now() && step(mine, event);
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    pointToken(stepToken(event.key, pictures[i].of.of));
  });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("blur", leave);
  figure.append(caption, canvas);
  pictures.push({ canvas, caption });
  return figure;
}

function paintLarge() {
  if (!state.selected || !pictures.length) return;
  const found = picturesOf(state.selected);
  if (found.length !== pictures.length) return buildLarge(), paintLarge();
  if (token && token.at >= countOf(view, token.side)) token = null;
  found.forEach((one, i) => {
    const { canvas, caption } = Object.assign(pictures[i], { of: one });
    const name = [placeName(state.selected), one.caption, t(`as_${state.as}`), t("keys_hint")].filter(Boolean);
    canvas.setAttribute("aria-label", name.join(", "));
    caption.textContent = one.caption;
    caption.hidden = !one.caption;
    (state.as === "arcs" ? paintArcs : paintMap)(canvas, { ...one, tokens: one.of.tokens, keys: one.of.keys, large: true });
  });
  paintOverall();
  $(".large").dataset.as = state.as;
  $(".said").textContent = state.as === "arcs" ? tellToken() : "";
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
  paintOverall();
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
