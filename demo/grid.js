// Draws every head's attention map, with a switch for each head. Runs after maps.js.
//
// Events: ablate {off, replacement} when a head is switched; redraw when the grid has changed;
// save {ending, head, shared} when a file is asked for.

let view = null; // what is drawn: props.value, unpacked
let shown = null; // the numbers that are drawn: {values, both}
let panels = []; // one {layer, head, box, button, canvas, note, mark, toggle} for each head, layer by layer
const state = { quantity: "weights", shared: true, selected: null }; // what a visitor has chosen here

// ---------------------------------------------------------------- building

function build() {
  panels = [];
  const sections = [];
  for (let layer = 0; layer < view.layers; layer++) {
    const section = make("section", "layer"), row = make("div", "row");
    row.style.setProperty("--heads", view.heads);
    section.append(make("h2", "", t("layer", { layer })), row);
    for (let head = 0; head < view.heads; head++) row.append(panel(layer, head));
    sections.push(section);
  }
  layersBox.replaceChildren(...sections);
}

function panel(layer, head) {
  const box = make("div", "head"), caption = make("div", "caption"), note = make("span", "note"), mark = make("span", "mark");
  const toggle = make("button", "toggle"), button = make("button", "map"), canvas = make("canvas");
  toggle.type = button.type = "button";
  toggle.setAttribute("role", "switch");
  toggle.setAttribute("aria-label", t("layer_head", { layer, head }));
  toggle.append(make("i"));
  caption.append(toggle, make("span", "name", t("head", { head })), mark, note);
  button.append(canvas, make("i", "band query"), make("i", "band key"));
  box.append(caption, button);
  const mine = { layer, head, box, button, canvas, note, mark, toggle };
  panels.push(mine);
  canvas.addEventListener("pointermove", (event) => point(mine, cellUnder(canvas, event, view.T)));
  canvas.addEventListener("pointerleave", () => point(null));
  button.addEventListener("blur", () => point(null));
  button.addEventListener("keydown", (event) => step(mine, event));
  button.addEventListener("click", () => select(mine));
  toggle.addEventListener("click", () => flipSwitch(mine));
  return box;
}

const isOff = ({ layer, head }) => view.off.some(([l, h]) => l === layer && h === head);
const same = (a, b) => Boolean(a && b && a.layer === b.layer && a.head === b.head);

function flipSwitch(mine) {
  const others = view.off.filter(([layer, head]) => !same(mine, { layer, head }));
  ablate(isOff(mine) ? others : [...others, [mine.layer, mine.head]]);
}

function ablate(off, replacement = view.replacement) {
  trigger("ablate", { off: off.map((head) => head.join(".")).join(" "), replacement });
}

// A question with a few answers, side by side: [[value, text], …].
function choice(label, value, answers, onChoice) {
  const group = make("fieldset", "choice"), name = `choice-${label}`;
  group.append(make("legend", "", label));
  for (const [answer, text] of answers) {
    const box = make("label"), input = make("input");
    Object.assign(input, { type: "radio", name, value: answer, checked: answer === value });
    input.addEventListener("change", () => onChoice(answer));
    box.append(input, make("span", "", text));
    group.append(box);
  }
  return group;
}

function action(text, className, onClick) {
  const button = make("button", `small ${className}`, text);
  button.type = "button";
  button.addEventListener("click", onClick);
  return button;
}

// A row of buttons that save a file; `head` is a place {layer, head}, or null for all of them.
function saveRow(label, endings, head) {
  const row = make("div", "save");
  row.append(make("span", "", label));
  const ask = (ending) => trigger("save", { ending, head: head && [head.layer, head.head], shared: state.shared });
  for (const ending of endings) row.append(action(ending.toUpperCase(), "", () => ask(ending)));
  return row;
}

// Sequences that are one click away.
function tryRow(label, sequences) {
  const row = make("div", "save");
  row.append(make("span", "", label));
  for (const sequence of sequences) row.append(action(sequence, "sequence", () => typeIn(sequence)));
  return row;
}

function buildTools() {
  const scale = choice(t("scale"), String(state.shared), [["true", t("scale_shared")], ["false", t("scale_own")]], (answer) => {
    state.shared = answer === "true";
    paint();
  });
  const quantities = Object.keys(QUANTITIES).filter((name) => name !== "difference" || view.means);
  const names = { weights: t("show_weights"), norms: t("show_norms"), difference: t("show_difference") };
  const what = choice(t("show"), state.quantity, quantities.map((name) => [name, names[name]]), (answer) => {
    state.quantity = answer;
    measure();
    paint();
  });
  const fills = [["zero", t("replacement_zero")], ["mean", t("replacement_mean")]];
  const filling = choice(t("replacement"), view.replacement, fills, (answer) => ablate(view.off, answer));
  filling.hidden = !view.off.length || !view.means;
  const legend = make("div", "legend");
  legend.setAttribute("role", "img");
  legend.setAttribute("aria-label", t("legend"));
  legend.append(make("span", "low"), make("span", "bar"), make("span", "top"));
  const allOn = action(t("all_on"), "all-on", () => ablate([]));
  allOn.hidden = !view.off.length;
  $(".tools").replaceChildren(what, scale, legend, filling, allOn);
  const near = view.means ? [tryRow(t("nearest_wrong"), props.over_set.nearest_wrong)] : [];
  $(".files").replaceChildren(saveRow(t("save_all"), ["png", "svg", "csv"], null), ...near);
}

// ---------------------------------------------------------------- drawing

function measure() {
  if (state.quantity === "difference" && !view.means) state.quantity = "weights";
  const { of, both } = QUANTITIES[state.quantity];
  shown = { values: of(view), both };
}

function draw() {
  if (!props.value || !props.words) return;
  const before = view;
  view = unpack(props.value);
  measure();
  const shape = ({ layers, heads }) => `${layers} ${heads}`;
  if (!before || shape(before) !== shape(view) || root.dataset.words !== t("layer")) build();
  root.dataset.words = t("layer");
  if (state.selected && (state.selected.layer >= view.layers || state.selected.head >= view.heads)) select(null);
  buildTools();
  point(null);
  paint();
  tellEffects();
  tellUsual();
  root.dataset.drawn = Number(root.dataset.drawn || 0) + 1;
  root.dataset.tokens = view.tokens.join(" ");
  root.dataset.off = view.off.map((head) => head.join(".")).join(" ");
  const { checkpoint, sequence, off, replacement } = view;
  trigger("redraw", { checkpoint, sequence, off, replacement });
}

function paint() {
  if (!view || !root.clientWidth) return;
  const common = largest(shown.values), size = view.T * view.T;
  for (const mine of panels) {
    const from = offset(view, mine), own = largest(shown.values, from, size), weight = largest(view.weights, from, size);
    const place = { layer: mine.layer, head: mine.head };
    mine.button.setAttribute(
      "aria-label",
      `${t("layer_head", place)}, ${t("largest", { weight: weight.toFixed(4) })}`,
    );
    mine.button.setAttribute("aria-pressed", same(mine, state.selected));
    mine.toggle.setAttribute("aria-checked", !isOff(mine));
    mine.box.classList.toggle("off", isOff(mine));
    mine.box.title = state.shared ? "" : `${shown.both ? -own.toFixed(3) : 0} – ${own.toFixed(3)}`;
    paintMap(mine.canvas, { ...shown, from, tokens: view.tokens, top: state.shared ? common : own });
  }
  $(".legend .low").textContent = state.shared && shown.both ? signed(-common) : "0";
  $(".legend .bar").style.background = gradient(shown.both ? "both" : "one");
  $(".legend .top").textContent = state.shared ? common.toFixed(2) : t("each_largest");
  paintLarge();
}

// ---------------------------------------------------------------- what each head is worth here

function tellEffects() {
  const effects = props.effects && view && props.effects.of === view.state ? props.effects : null;
  const most = effects ? largest(effects.heads.flat()) : 1;
  for (const { layer, head, note, box } of panels) {
    const change = effects ? effects.heads[layer][head] : null;
    note.textContent = effects ? signed(change) : "";
    note.title = effects ? t("without", { change: signed(change) }) : "";
    note.classList.toggle("turns", Boolean(effects && effects.turns[layer][head]));
    box.style.setProperty("--worth", effects ? Math.abs(change) / most : 0);
  }
  root.dataset.effects = effects ? effects.of : "";
}

// ---------------------------------------------------------------- what is unusual here

const usualNow = () => (props.usual && view && props.usual.of === view.state ? props.usual : null);

function tellUsual() {
  const usual = usualNow();
  for (const { layer, head, mark } of panels) {
    const odd = usual ? usual.unusual[layer][head] : [];
    mark.textContent = odd.length ? "◆" : "";
    mark.title = odd.length ? t("unusual", { statistics: odd.join(", ") }) : "";
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", mark.title);
    mark.hidden = !odd.length;
  }
  root.dataset.usual = usual ? usual.of : "";
  paintStatistics();
}

// ---------------------------------------------------------------- pointing

let cursor = null; // the cell that is pointed at, {query, key}

function step(mine, event) {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!move) return;
  event.preventDefault();
  const keep = (at) => Math.min(view.T - 1, Math.max(0, at));
  point(mine, cursor ? { query: keep(cursor.query + move[0]), key: keep(cursor.key + move[1]) } : { query: 0, key: 0 });
}

// Lights one cell's row and column in every head, and tells its numbers.
function point(mine, cell = null) {
  cursor = cell;
  root.classList.toggle("pointing", Boolean(cell));
  tip.hidden = !cell;
  if (!cell) return;
  light(cell);
  const { query, key } = cell, i = offset(view, mine) + query * view.T + key;
  const lines = [make("b", "weight", view.weights[i].toFixed(4))];
  if (state.quantity === "norms") lines.push(make("span", "", `${t("show_norms")}: ${shown.values[i].toFixed(4)}`));
  if (state.quantity === "difference") lines.push(make("span", "", `${t("show_difference")}: ${signed(shown.values[i], 4)}`));
  const tokens = { query_token: view.tokens[query], key_token: view.tokens[key] };
  lines.push(make("span", "", t("query_key", { query, key, ...tokens })));
  lines.push(make("span", "where", t("layer_head", mine)));
  tip.replaceChildren(...lines);
  const side = mine.canvas.clientWidth, gutter = gutterOf(side), size = (side - gutter) / view.T;
  place(mine.canvas, gutter + (key + 0.5) * size, gutter + (query + 0.5) * size);
}

function light({ query, key }) {
  const side = panels[0].canvas.clientWidth, gutter = gutterOf(side);
  root.style.setProperty("--gutter", `${gutter}px`);
  root.style.setProperty("--cell", `${(side - gutter) / view.T}px`);
  root.style.setProperty("--query", query);
  root.style.setProperty("--key", key);
}

// Beside the cell, never over it, and never outside the component.
function place(canvas, x, y) {
  const outer = root.getBoundingClientRect(), box = canvas.getBoundingClientRect();
  const left = box.left - outer.left + x, top = box.top - outer.top + y, gap = 14;
  const right = left + gap + tip.offsetWidth <= outer.width;
  tip.style.left = `${Math.max(0, right ? left + gap : left - gap - tip.offsetWidth)}px`;
  tip.style.top = `${top - gap - tip.offsetHeight >= 0 ? top - gap - tip.offsetHeight : top + gap}px`;
}

// A token that is pointed at elsewhere on the page lights up in every head.
window.addEventListener("token", ({ detail }) => {
  const here = view && Number.isInteger(detail) && detail < view.T;
  root.classList.toggle("pointing", Boolean(here));
  if (here) light({ query: detail, key: detail });
});
