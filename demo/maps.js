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

// R tokens look at T keys: in cross attention at others, else at themselves.
function unpack(value) {
  const R = value.tokens.length, T = value.keys.length, set = prop("over_set");
  const means = set && set.checkpoint === value.checkpoint && set.length === T ? meansOf(set) : null;
  return { ...value, R, T, weights: floats(value.weights), means };
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

const offset = (view, { layer, head }) => (layer * view.heads + head) * view.R * view.T;

// What a view is of, as it is asked for: see packing.question.
const questionOf = ({ checkpoint, sequence, off, replacement, second, kind }) => ({ checkpoint, sequence, off, replacement, second, kind });

// What a map may show: for which readings, what of a view, head by head, and whether it runs to both sides of 0.
const QUANTITIES = {
  weights: { there: () => true, of: (view) => view.weights, both: false },
  norms: { there: (view) => view.norms, of: (view) => view.weights.map((w, i) => w * normOf(view, i)), both: false },
  difference: { there: (view) => view.means, of: (view) => view.weights.map((w, i) => w - view.means[i]), both: true },
  beside: { there: () => besideFits(), of: (view) => view.weights.map((w, i) => w - comparedNow().weights[i]), both: true },
};
const normOf = (view, i) => {
  const map = Math.floor(i / (view.R * view.T));
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

// The room that words want beside a map, or over it; null where there are none.
function roomForWords(context, tokens, side, fontFamily) {
  if (!wordy(tokens)) return null;
  context.font = `11px ${fontFamily}`;
  return Math.min(0.3 * side, 8 + Math.max(...tokens.map((token) => context.measureText(token).width)));
}

// The room for the labels left of a map and over it, in CSS pixels, and whether they are words: only of a large map, and
// where each has a row's height.
function roomFor(context, { tokens, keys, large }, side, fontFamily) {
  const plain = gutterOf(side);
  const [left, top] = [tokens, keys].map((labels) => (large ? roomForWords(context, labels, side, fontFamily) : null));
  const rows = left && (side - (top ?? plain)) / tokens.length >= 9, columns = top && (side - (left ?? plain)) / keys.length >= 9;
  return { left: rows ? left : plain, top: columns ? top : plain, rows, columns };
}

// How wide canvases are and what they write with: asked once for all that look alike, since each answer costs a layout.
function lookOf(canvas) {
  const { color, fontFamily } = getComputedStyle(canvas);
  return { side: canvas.clientWidth, ratio: window.devicePixelRatio || 1, color, fontFamily };
}

// Draws R × T values from `from` on; the labels of rows and columns are the tokens, or where there is no room their numbers.
function paintMap(canvas, map, { side, ratio, color, fontFamily } = lookOf(canvas)) {
  const { values, from, tokens, keys, top, both } = map, R = tokens.length, T = keys.length;
  if (!side) return;
  const small = new ImageData(T, R), cells = new Uint32Array(small.data.buffer), pixels = PIXELS[both ? "both" : "one"];
  for (let i = 0; i < R * T; i++) cells[i] = pixels[shade(values[from + i], top, both)];
  const source = new OffscreenCanvas(T, R);
  source.getContext("2d").putImageData(small, 0, 0);

  canvas.width = canvas.height = Math.round(side * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const room = roomFor(context, map, side, fontFamily);
  canvas.room = room; // asked by who looks for the cell under a pointer
  context.imageSmoothingEnabled = false;
  context.drawImage(source, room.left, room.top, side - room.left, side - room.top);
  context.fillStyle = color;
  context.textBaseline = "middle";
  const rows = { labels: tokens, words: room.rows, start: room.top, cell: (side - room.top) / R, room: room.left };
  const columns = { labels: keys, words: room.columns, start: room.left, cell: (side - room.left) / T, room: room.top, over: true };
  for (const axis of [rows, columns]) (axis.words ? writeWords : writeSigns)(context, axis, fontFamily);
}

const startWriting = (context, cell, fontFamily) => (context.font = `${Math.min(11, Math.max(8, cell))}px ${fontFamily}`);

// Labels that would run into each other are thinned, and then are position numbers.
function writeSigns(context, { labels, start, cell, room, over }, fontFamily) {
  startWriting(context, cell, fontFamily);
  context.textAlign = "center";
  const every = cell >= 8 && !wordy(labels) ? 1 : Math.ceil((context.measureText(labels.length).width + 4) / cell);
  for (let i = 0; i < labels.length; i += every) {
    const label = every === 1 && !wordy(labels) ? labels[i] : String(i), middle = start + (i + 0.5) * cell;
    if (over) context.fillText(label, middle, room / 2, every * cell);
    else context.fillText(label, room / 2, middle, room);
  }
}

// Beside the rows, and upright over the columns.
function writeWords(context, { labels, start, cell, room, over }, fontFamily) {
  startWriting(context, cell, fontFamily);
  for (const [i, label] of labels.entries()) {
    const middle = start + (i + 0.5) * cell;
    context.save();
    context.textAlign = over ? "left" : "right";
    if (over) context.translate(middle, room - 4);
    else context.translate(room - 4, middle);
    if (over) context.rotate(-Math.PI / 2);
    context.fillText(label, 0, 0, room - 6);
    context.restore();
  }
}

const plainRoom = (side) => ({ left: gutterOf(side), top: gutterOf(side) });

// The cell under the pointer. On the labels it is where a token meets itself; none in cross attention.
function cellUnder(canvas, event, { R, T, kind }) {
  const box = canvas.getBoundingClientRect(), { left, top } = canvas.room ?? plainRoom(box.width);
  const key = Math.floor(((event.clientX - box.left - left) / (box.width - left)) * T);
  const query = Math.floor(((event.clientY - box.top - top) / (box.width - top)) * R);
  const labels = query < 0 || key < 0;
  if (query >= R || key >= T || (query < 0 && key < 0) || (labels && kind === "cross")) return null;
  return { query: query < 0 ? key : query, key: key < 0 ? query : key };
}
