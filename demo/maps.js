// What every part of the picture shares: the numbers, their colours, one map on one canvas.
//
// props.value: as packing.packed makes it, or "". props.words: the texts of the page's language.
// props.over_set: as parts.over_set makes it, or null. props.beside: another reading, packed, or {refused: why}.
// props.colours, props.diverging: 256 times rrggbb.

const FULL = 65535; // the integer for weight 1
const $ = (selector) => element.querySelector(selector);
const root = $(".attention"), layersBox = $(".layers"), tip = $(".tip");
const signed = (x, digits = 2) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(digits)}`;

// ---------------------------------------------------------------- numbers

function unpack(value) {
  const T = value.tokens.length, set = prop("over_set");
  const means = set && set.checkpoint === value.checkpoint && set.length === T ? meansOf(set) : null;
  return { ...value, T, weights: floats(value.weights), means };
}

let unpackedMeans = {}; // of which set, and its mean maps
function meansOf(set) {
  if (unpackedMeans.of !== set) unpackedMeans = { of: set, is: floats(set.mean_attention) };
  return unpackedMeans.is;
}

// Plain loops: what is done once for each of half a million weights must not call a function for it.
function floats(base64) {
  const text = atob(base64), found = new Float32Array(text.length / 2);
  for (let i = 0; i < found.length; i++) found[i] = (text.charCodeAt(2 * i) + 256 * text.charCodeAt(2 * i + 1)) / FULL;
  return found;
}

const offset = (view, { layer, head }) => (layer * view.heads + head) * view.T * view.T;

// What a map may show: for which readings, what of a view, head by head, and whether it runs to both sides of 0.
const QUANTITIES = {
  weights: { there: () => true, of: (view) => view.weights, both: false },
  norms: { there: (view) => view.norms, of: (view) => view.weights.map((w, i) => w * normOf(view, i)), both: false },
  difference: { there: (view) => view.means, of: (view) => view.weights.map((w, i) => w - view.means[i]), both: true },
  beside: { there: () => besideFits(), of: (view) => view.weights.map((w, i) => w - comparedNow().weights[i]), both: true },
};
const normOf = (view, i) => {
  const map = Math.floor(i / (view.T * view.T));
  return view.norms[Math.floor(map / view.heads)][map % view.heads][i % view.T];
};

// The largest size in a run of numbers; never 0, since it is divided by.
function largest(values, from = 0, count = values.length) {
  let top = 1e-9;
  for (let i = from; i < from + count; i++) top = Math.max(top, Math.abs(values[i]));
  return top;
}

// ---------------------------------------------------------------- colours

// One opaque pixel per colour, as ImageData has them in memory: alpha, blue, green, red.
const pixelsOf = (palette) =>
  Uint32Array.from(palette, (hex) => {
    const [red, green, blue] = hex.match(/../g).map((part) => parseInt(part, 16));
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
const PALETTES = { one: props.colours.match(/.{6}/g), both: props.diverging.match(/.{6}/g) };
const PIXELS = { one: pixelsOf(PALETTES.one), both: pixelsOf(PALETTES.both) };
const gradient = (side) => `linear-gradient(to right, ${PALETTES[side].map((colour) => `#${colour}`).join()})`;
const shade = (x, top, both) => Math.round(both ? 127.5 + (127.5 * x) / top : (255 * x) / top);

// ---------------------------------------------------------------- one map

const gutterOf = (side) => Math.max(12, Math.min(16, 0.07 * side)); // room for the labels, in CSS pixels
const wordy = (tokens) => tokens.some((token) => token.length > 2);

// The room that words want beside and over a map, where each has a row's height; else null.
function roomForWords(context, tokens, side, fontFamily) {
  if (!wordy(tokens)) return null;
  context.font = `11px ${fontFamily}`;
  const room = Math.min(0.3 * side, 8 + Math.max(...tokens.map((token) => context.measureText(token).width)));
  return (side - room) / tokens.length >= 9 ? room : null;
}

// How wide canvases are and what they write with: asked once for all that look alike, since each answer costs a layout.
function lookOf(canvas) {
  const { color, fontFamily } = getComputedStyle(canvas);
  return { side: canvas.clientWidth, ratio: window.devicePixelRatio || 1, color, fontFamily };
}

// Draws T × T values from `from` on; the labels of rows and columns are the tokens, or where there is no room their numbers.
function paintMap(canvas, { values, from, tokens, top, both, large }, { side, ratio, color, fontFamily } = lookOf(canvas)) {
  const T = tokens.length;
  if (!side) return;
  const small = new ImageData(T, T), cells = new Uint32Array(small.data.buffer), pixels = PIXELS[both ? "both" : "one"];
  for (let i = 0; i < T * T; i++) cells[i] = pixels[shade(values[from + i], top, both)];
  const source = new OffscreenCanvas(T, T);
  source.getContext("2d").putImageData(small, 0, 0);

  canvas.width = canvas.height = Math.round(side * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const room = large ? roomForWords(context, tokens, side, fontFamily) : null;
  const gutter = room ?? gutterOf(side), cell = (side - gutter) / T;
  canvas.gutter = gutter; // asked by who looks for the cell under a pointer
  context.imageSmoothingEnabled = false;
  context.drawImage(source, gutter, gutter, side - gutter, side - gutter);
  context.fillStyle = color;
  context.font = `${Math.min(11, Math.max(8, cell))}px ${fontFamily}`;
  context.textBaseline = "middle";
  if (room) return writeWords(context, tokens, gutter, cell);
  context.textAlign = "center";
  // Labels that would run into each other are thinned, and then are position numbers.
  const every = cell >= 8 && !wordy(tokens) ? 1 : Math.ceil((context.measureText(T).width + 4) / cell);
  for (let i = 0; i < T; i += every) {
    const label = every === 1 && !wordy(tokens) ? tokens[i] : String(i), middle = gutter + (i + 0.5) * cell;
    context.fillText(label, middle, gutter / 2, every * cell);
    context.fillText(label, gutter / 2, middle, gutter);
  }
}

// Beside the rows, and upright over the columns.
function writeWords(context, tokens, gutter, cell) {
  for (const [i, token] of tokens.entries()) {
    const middle = gutter + (i + 0.5) * cell;
    context.textAlign = "right";
    context.fillText(token, gutter - 4, middle, gutter - 6);
    context.save();
    context.translate(middle, gutter - 4);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(token, 0, 0, gutter - 6);
    context.restore();
  }
}

// The cell under the pointer. On the labels it is where a token meets itself.
function cellUnder(canvas, event, T) {
  const box = canvas.getBoundingClientRect(), gutter = canvas.gutter ?? gutterOf(box.width), size = box.width - gutter;
  const [key, query] = [event.clientX - box.left, event.clientY - box.top].map((at) =>
    Math.floor(((at - gutter) / size) * T),
  );
  if (query >= T || key >= T || (query < 0 && key < 0)) return null;
  return { query: query < 0 ? key : query, key: key < 0 ? query : key };
}
