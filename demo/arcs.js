// One head as arcs, after BertViz: queries on the left, keys on the right, a line for each weight.

let token = null; // what is pointed at among the arcs: {side: "query" | "key", at}

// Room for a token and its number, or for a word, in CSS pixels.
const marginOf = (side, words) => (words ? Math.min(130, 0.3 * side) : Math.min(74, Math.max(30, 0.17 * side)));
const NUMBERS_FROM = 300; // CSS pixels: a narrower picture has no room for numbers

const countOf = ({ R, T }, side) => (side === "query" ? R : T); // tokens on a side

// Draws R × T values from `from` on. Where a token is pointed at, its own lines alone, with their numbers.
function paintArcs(canvas, { values, from, tokens, keys, top, both }) {
  const R = tokens.length, T = keys.length, side = canvas.clientWidth;
  if (!side) return;
  const ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d"), style = getComputedStyle(canvas);
  canvas.width = canvas.height = Math.round(side * ratio);
  context.scale(ratio, ratio);
  const words = wordy(tokens) || wordy(keys), margin = marginOf(side, words);
  const y = (query) => ((query + 0.5) * side) / R, yOfKey = (key) => ((key + 0.5) * side) / T;
  const strength = (i) => Math.abs(values[i]) / top;
  const colour = (x) => style.getPropertyValue(!both ? "--arc" : x < 0 ? "--arc-less" : "--arc-more");
  const chosen = (query, key) => !token || token.at === (token.side === "query" ? query : key);
  context.lineWidth = Math.min(3, Math.max(1, side / Math.max(R, T) / 6));
  for (let query = 0; query < R; query++) {
    for (let key = 0; key < T; key++) {
      const i = from + query * T + key;
      if (!chosen(query, key) || strength(i) < 0.02) continue;
      context.globalAlpha = token ? strength(i) : strength(i) ** 2; // all at once, only the strong ones are to be seen
      context.strokeStyle = colour(values[i]);
      context.beginPath();
      context.moveTo(margin, y(query));
      context.bezierCurveTo(side / 2, y(query), side / 2, yOfKey(key), side - margin, yOfKey(key));
      context.stroke();
    }
  }
  context.globalAlpha = 1;
  context.textBaseline = "middle";
  const font = (px, weight = 400) => `${weight} ${px}px ${style.fontFamily}`;
  const partners = token ? (token.side === "query" ? T : R) : 0;
  const most = largest(Array.from({ length: partners }, (_, i) => values[partner(from, i, T)]));
  const left = ["query", tokens, margin - 6, "right", -1], right = ["key", keys, side - margin + 6, "left", 1];
  for (const [name, labels, x, align, away] of [left, right]) {
    const step = side / labels.length, size = Math.min(14, Math.max(8, 0.7 * step)), every = step >= 8 ? 1 : Math.ceil(12 / step);
    context.textAlign = align;
    for (let i = 0; i < labels.length; i += every) {
      const middle = (i + 0.5) * step;
      const here = token && token.side === name && token.at === i, other = token && token.side !== name;
      context.fillStyle = here ? style.getPropertyValue("--here") : style.color;
      context.font = font(size, here ? 700 : 400);
      context.fillText(every === 1 ? labels[i] : String(i), x, middle, margin - 8);
      if (!other || side < NUMBERS_FROM || every > 1 || words) continue;
      const value = values[partner(from, i, T)];
      context.font = font(Math.min(11, size), Math.abs(value) === most ? 700 : 400);
      context.fillText(both ? signed(value, 3) : value.toFixed(3), x + away * 1.2 * size, middle);
    }
  }
}

// The index of the value between the token that is pointed at and the i-th of the other side.
const partner = (from, i, T) => from + (token.side === "query" ? token.at * T + i : i * T + token.at);

// The token that a pointer means: the half that it is in says which side.
function tokenUnder(canvas, event, reading) {
  const box = canvas.getBoundingClientRect(), side = event.clientX - box.left < box.width / 2 ? "query" : "key";
  const at = Math.floor(((event.clientY - box.top) / box.height) * countOf(reading, side));
  return at < 0 || at >= countOf(reading, side) ? null : { side, at };
}

function stepToken(key, reading) {
  if (!token) return { side: "query", at: 0 };
  const side = { ArrowLeft: "query", ArrowRight: "key" }[key] || token.side;
  const at = Math.max(0, token.at + ({ ArrowUp: -1, ArrowDown: 1 }[key] || 0));
  return { side, at: Math.min(countOf(reading, side) - 1, at) };
}

// Lights one token's lines here, and in every head its row and column, of which it has one alone in cross attention.
function pointToken(at) {
  if (same2(token, at)) return;
  token = at;
  const here = at && at.at < countOf(view, at.side);
  lightToken(here ? (view.kind === "cross" ? { [at.side]: at.at } : { query: at.at, key: at.at }) : null);
  paintLarge();
}

const same2 = (a, b) => (a && b ? a.side === b.side && a.at === b.at : a === b);

// What the lines of that token say in a sentence: its strongest.
function tellToken() {
  if (!token) return t("arcs_hint");
  const from = offset(view, state.selected), size = (i) => Math.abs(shown.values[partner(from, i, view.T)]);
  let best = 0;
  for (let i = 1; i < (token.side === "query" ? view.T : view.R); i++) if (size(i) > size(best)) best = i;
  const [query, key] = token.side === "query" ? [token.at, best] : [best, token.at];
  const tokens = { query_token: view.tokens[query], key_token: view.keys[key] };
  const value = shown.values[partner(from, best, view.T)];
  return t("arcs_most", { pair: t("query_key", { query, key, ...tokens }), value: shown.both ? signed(value, 4) : value.toFixed(4) });
}
