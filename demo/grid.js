// Draws every head's attention map, with a switch for each head.
//
// Events: redraw when the grid has changed; save {ending, head, …} when a file is asked for.

let view = null; // what is drawn: props.value, unpacked
let shown = null; // the numbers that are drawn: {values, both}
let panels = []; // one {layer, head, box, button, canvas, note, mark, toggle} for each head, layer by layer
const state = { quantity: "weights", shared: true, selected: null, as: "map" }; // what a visitor has chosen here

// ---------------------------------------------------------------- building

function build() {
  panels = [];
  const sections = [];
  for (let layer = 0; layer < view.layers; layer++) {
    const section = make("section", "layer"), row = make("div", "row");
    row.style.setProperty("--heads", view.heads);
    row.style.setProperty("--least", view.heads > 8 ? "120px" : "140px");
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
  canvas.addEventListener("pointermove", (event) => point(mine, cellUnder(canvas, event, view)));
  canvas.addEventListener("pointerleave", () => point(null));
  button.addEventListener("blur", () => point(null));
  button.addEventListener("keydown", (event) => step(mine, event));
  button.addEventListener("click", () => select(mine));
  toggle.addEventListener("click", () => flipSwitch(mine));
  return box;
}

// A head as links write it, "0.1" or "cross.0.1", and in words.
const nameOf = ({ layer, head }) => [view.kind, layer, head].filter((part) => part !== undefined).join(".");
const placeName = (place) => (view.kind ? t("head_of_kind", { ...place, kind: t(`kind_${view.kind}`) }) : t("layer_head", place));
const isOff = (place) => view.off.split(" ").includes(nameOf(place));
const same = (a, b) => Boolean(a && b && a.layer === b.layer && a.head === b.head);

// What is off by what is asked, which may not be answered yet: else the first of two quick switches were forgotten.
function flipSwitch(mine) {
  const off = field("off").value.split(" ").filter(Boolean), others = off.filter((name) => name !== nameOf(mine));
  write("off", (others.length < off.length ? others : [...others, nameOf(mine)]).join(" "));
}

// ---------------------------------------------------------------- drawing

// What is chosen, where this reading has it.
const quantityNow = () => (QUANTITIES[state.quantity].there(view) ? state.quantity : "weights");

function measure() {
  const { of, both } = QUANTITIES[quantityNow()];
  shown = { values: of(view), both };
}

function draw() {
  if (!prop("value") || !prop("words")) return;
  const before = view;
  view = unpack(prop("value"));
  if (wanted.pin && !before) askPin(wanted.pin);
  askBeside();
  measure();
  const shape = ({ layers, heads }) => `${layers} ${heads}`;
  if (!before || shape(before) !== shape(view) || root.dataset.words !== t("layer")) build();
  root.dataset.words = t("layer");
  if (state.selected && !hasHead(view, state.selected)) {
    state.selected = null;
    buildLarge();
  }
  tellStudies();
  tellTraining();
  if (state.selected && (!pictures.length || before?.checkpoint !== view.checkpoint || before.kind !== view.kind)) buildLarge();
  buildTools();
  point(null);
  paint();
  tellEffects();
  tellUsual();
  root.dataset.drawn = Number(root.dataset.drawn || 0) + 1;
  root.dataset.tokens = view.tokens.join(" ");
  root.dataset.keys = view.keys.join(" ");
  root.dataset.off = view.off;
  askEffects();
}

function paint() {
  if (!view || !root.clientWidth) return;
  const common = largest(shown.values), size = view.R * view.T, look = lookOf(panels[0].canvas);
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
    paintMap(mine.canvas, { ...shown, from, tokens: view.tokens, keys: view.keys, top: state.shared ? common : own }, look);
  }
  $(".legend .low").textContent = state.shared && shown.both ? signed(-common) : "0";
  $(".legend .bar").style.background = gradient(shown.both ? "both" : "one");
  $(".legend .top").textContent = state.shared ? common.toFixed(2) : t("each_largest");
  paintLarge();
  markDots();
}

// ---------------------------------------------------------------- what each head is worth here

const patience = () => 10_000 + 500 * view.layers * view.heads; // ms: an answer that is not there by then was lost
const waiting = { number: 0, since: null, of: "" }; // for the answer to which question
const inWords = () => `${view.state} ${t("language")}`; // statistics and ranks come in a language

// One question at a time: while one types, those in between are never asked.
function askEffects() {
  if (waiting.since !== null && performance.now() - waiting.since < patience()) return;
  waiting.since = performance.now();
  waiting.number += 1;
  waiting.of = inWords();
  trigger("redraw", { of: questionOf(view), number: waiting.number });
}

function gotEffects() {
  if (!view || !prop("effects")) return;
  if (prop("effects").number === waiting.number) waiting.since = null;
  if (waiting.of !== inWords()) askEffects();
  tellEffects();
}

function tellEffects() {
  const effects = prop("effects")?.of === view.state ? prop("effects") : null;
  const most = effects ? largest(effects.heads.flat()) : 1;
  for (const { layer, head, note, box } of panels) {
    const change = effects ? effects.heads[layer][head] : null;
    note.textContent = effects ? signed(change, view.digits) : "";
    note.title = effects ? t("without", { change: signed(change, view.digits) }) : "";
    note.classList.toggle("turns", Boolean(effects && effects.turns[layer][head]));
    box.style.setProperty("--worth", effects ? Math.abs(change) / most : 0);
  }
  root.dataset.effects = effects ? effects.of : "";
}

// ---------------------------------------------------------------- what is unusual here

const usualNow = () => (view && prop("usual")?.of === view.state ? prop("usual") : null);

// A statistic of the head on this sequence: as it is written, "" while it is not known; and as a number, NaN where there is none.
function usualOf(k, { layer, head }) {
  const text = usualNow()?.statistics[k]?.values[layer][head] ?? "";
  return { text, value: text ? Number(text.replaceAll("−", "-").replaceAll(",", "")) : NaN };
}

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
  markDots();
}
