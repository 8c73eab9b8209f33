// Draws every head's attention map. This is the js_on_load of one gr.HTML: Gradio hands in element, props, trigger, watch.
//
// props.value: {layers, heads, tokens, weights, shared, selected} as views.packed makes it, or null.
// props.colours: 256 times rrggbb, from weight 0 up.
// Events: pick {layer, head} when a head is clicked; redraw when the grid has changed while a head is selected.
// Text from outside reaches the page through textContent and fillText alone, never as HTML.

const palette = props.colours.match(/.{6}/g);
const FULL = 65535; // the integer for weight 1
const $ = (selector) => element.querySelector(selector);
const root = $(".attention"), layersBox = $(".layers"), tip = $(".tip");
const make = (tag, className, text = "") =>
  Object.assign(document.createElement(tag), { className, textContent: text });

let view = null; // what is drawn: props.value with its weights unpacked
let panels = []; // one {layer, head, button, canvas, note} per head, layer by layer

// ---------------------------------------------------------------- reading

function unpack(value) {
  const bytes = Uint8Array.from(atob(value.weights), (c) => c.charCodeAt(0));
  return { ...value, T: value.tokens.length, weights: new Uint16Array(bytes.buffer) };
}

const offset = ({ layer, head }) => (layer * view.heads + head) * view.T * view.T;
const largest = (from, count) => {
  let top = 1; // never 0: it is divided by
  for (let i = from; i < from + count; i++) if (view.weights[i] > top) top = view.weights[i];
  return top;
};
const written = (integer) => (integer / FULL).toFixed(4);

// ---------------------------------------------------------------- building

function build() {
  panels = [];
  const sections = [];
  for (let layer = 0; layer < view.layers; layer++) {
    const section = make("section", "layer");
    const row = make("div", "row");
    row.style.setProperty("--heads", view.heads);
    section.append(make("h3", "", `layer ${layer}`), row);
    for (let head = 0; head < view.heads; head++) row.append(panel(layer, head));
    sections.push(section);
  }
  layersBox.replaceChildren(...sections);
}

function panel(layer, head) {
  const button = make("button", "head"), caption = make("span", "caption"), note = make("span", "note");
  const map = make("span", "map"), canvas = make("canvas", "");
  button.type = "button";
  caption.append(make("span", "", `head ${head}`), note);
  map.append(canvas, make("i", "band query"), make("i", "band key"));
  button.append(caption, map);
  const mine = { layer, head, button, canvas, note };
  panels.push(mine);
  canvas.addEventListener("pointermove", (event) => point(mine, cellUnder(mine, event)));
  canvas.addEventListener("pointerleave", () => point(null));
  button.addEventListener("blur", () => point(null));
  button.addEventListener("keydown", (event) => step(mine, event));
  button.addEventListener("click", () => trigger("pick", { layer, head }));
  return button;
}

// ---------------------------------------------------------------- drawing

function draw() {
  if (!props.value) return;
  const before = view;
  view = unpack(props.value);
  if (!before || before.layers !== view.layers || before.heads !== view.heads) build();
  point(null);
  paint();
  root.dataset.drawn = Number(root.dataset.drawn || 0) + 1;
  root.dataset.tokens = view.tokens.join(" ");
  if (view.selected) trigger("redraw");
}

function paint() {
  if (!view || !root.clientWidth) return;
  const common = largest(0, view.weights.length);
  for (const mine of panels) {
    const own = largest(offset(mine), view.T * view.T);
    const chosen = view.selected && view.selected[0] === mine.layer && view.selected[1] === mine.head;
    mine.button.setAttribute("aria-label", `layer ${mine.layer}, head ${mine.head}, largest weight ${written(own)}`);
    mine.button.setAttribute("aria-pressed", Boolean(chosen));
    mine.note.textContent = view.shared ? "" : `0 – ${(own / FULL).toFixed(2)}`;
    paintMap(mine, view.shared ? common : own);
  }
  $(".scale").classList.toggle("own", !view.shared);
  $(".top").textContent = view.shared ? (common / FULL).toFixed(2) : "each head’s largest";
}

// One opaque pixel per colour, as ImageData has them in memory: alpha, blue, green, red.
const pixels = Uint32Array.from(palette, (hex) => {
  const [red, green, blue] = hex.match(/../g).map((part) => parseInt(part, 16));
  return (255 << 24) | (blue << 16) | (green << 8) | red;
});

function paintMap({ layer, head, canvas }, top) {
  const { T, weights, tokens } = view;
  const small = new ImageData(T, T), cells = new Uint32Array(small.data.buffer), from = offset({ layer, head });
  for (let i = 0; i < T * T; i++) cells[i] = pixels[Math.round((255 * weights[from + i]) / top)];
  const source = new OffscreenCanvas(T, T);
  source.getContext("2d").putImageData(small, 0, 0);

  const ratio = window.devicePixelRatio || 1, side = canvas.clientWidth, gutter = gutterOf(side);
  canvas.width = canvas.height = Math.round(side * ratio);
  const context = canvas.getContext("2d"), cell = (side - gutter) / T;
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  context.drawImage(source, gutter, gutter, side - gutter, side - gutter);

  const style = getComputedStyle(canvas);
  context.fillStyle = style.color;
  context.font = `${Math.min(11, Math.max(8, cell))}px ${style.fontFamily}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  // Labels that would run into each other are thinned, and then are position numbers.
  const every = cell >= 8 ? 1 : Math.ceil((context.measureText(T).width + 4) / cell);
  for (let i = 0; i < T; i += every) {
    const label = every === 1 ? tokens[i] : String(i), middle = gutter + (i + 0.5) * cell;
    context.fillText(label, middle, gutter / 2, every * cell);
    context.fillText(label, gutter / 2, middle, gutter);
  }
}

const gutterOf = (side) => Math.max(12, Math.min(16, 0.07 * side)); // room for the labels, in CSS pixels

// ---------------------------------------------------------------- pointing

function cellUnder({ canvas }, event) {
  const box = canvas.getBoundingClientRect(), gutter = gutterOf(box.width), size = box.width - gutter;
  const [key, query] = [event.clientX - box.left, event.clientY - box.top].map((at) =>
    Math.floor(((at - gutter) / size) * view.T),
  );
  return query >= 0 && key >= 0 && query < view.T && key < view.T ? { query, key } : null;
}

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
  const { query, key } = cell, side = mine.canvas.clientWidth, gutter = gutterOf(side);
  const size = (side - gutter) / view.T;
  root.style.setProperty("--gutter", `${gutter}px`);
  root.style.setProperty("--cell", `${size}px`);
  root.style.setProperty("--query", query);
  root.style.setProperty("--key", key);
  const weight = view.weights[offset(mine) + query * view.T + key];
  tip.replaceChildren(
    make("b", "weight", written(weight)),
    make("span", "", `query ${query} ‘${view.tokens[query]}’ → key ${key} ‘${view.tokens[key]}’`),
    make("span", "where", `layer ${mine.layer}, head ${mine.head}`),
  );
  place(mine, gutter + (key + 0.5) * size, gutter + (query + 0.5) * size);
}

// Beside the cell, never over it, and never outside the component.
function place({ canvas }, x, y) {
  const outer = root.getBoundingClientRect(), box = canvas.getBoundingClientRect();
  const left = box.left - outer.left + x, top = box.top - outer.top + y, gap = 14;
  const right = left + gap + tip.offsetWidth <= outer.width;
  tip.style.left = `${Math.max(0, right ? left + gap : left - gap - tip.offsetWidth)}px`;
  tip.style.top = `${top - gap - tip.offsetHeight >= 0 ? top - gap - tip.offsetHeight : top + gap}px`;
}

let width = 0;
function resized() {
  if (root.clientWidth !== width) paint();
  width = root.clientWidth;
}

$(".bar").style.background = `linear-gradient(to right, ${palette.map((colour) => `#${colour}`).join()})`;
new ResizeObserver(resized).observe(root);
document.fonts.ready.then(paint);
new MutationObserver(paint).observe(document.body, { attributeFilter: ["class"] }); // light and dark
watch("value", draw);
draw();
