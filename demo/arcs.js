// One head as arcs, after BertViz: queries on the left, keys on the right, a line for each weight.

let token = null; // what is pointed at among the arcs: {side: "query" | "key", at}

// Room for a token and its number, or for a word, in CSS pixels.
const marginOf = (side, words) => (words ? Math.min(130, 0.3 * side) : Math.min(74, Math.max(30, 0.17 * side)));
const NUMBERS_FROM = 300; // CSS pixels: a narrower picture has no room for numbers

// Draws T × T values from `from` on. Where a token is pointed at, its own lines alone, with their numbers.
function paintArcs(canvas, { values, from, tokens, top, both }) {
  const T = tokens.length, side = canvas.clientWidth;
  if (!side) return;
  const ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d"), style = getComputedStyle(canvas);
  canvas.width = canvas.height = Math.round(side * ratio);
  context.scale(ratio, ratio);
  const words = wordy(tokens), step = side / T, margin = marginOf(side, words), y = (i) => (i + 0.5) * step;
  const strength = (i) => Math.abs(values[i]) / top;
  const colour = (x) => style.getPropertyValue(!both ? "--arc" : x < 0 ? "--arc-less" : "--arc-more");
  const chosen = (query, key) => !token || token.at === (token.side === "query" ? query : key);
  context.lineWidth = Math.min(3, Math.max(1, step / 6));
  for (let query = 0; query < T; query++) {
    for (let key = 0; key < T; key++) {
      const i = from + query * T + key;
      if (!chosen(query, key) || strength(i) < 0.02) continue;
      context.globalAlpha = token ? strength(i) : strength(i) ** 2; // all at once, only the strong ones are to be seen
      context.strokeStyle = colour(values[i]);
      context.beginPath();
      context.moveTo(margin, y(query));
      context.bezierCurveTo(side / 2, y(query), side / 2, y(key), side - margin, y(key));
      context.stroke();
    }
  }
  context.globalAlpha = 1;
  context.textBaseline = "middle";
  const size = Math.min(14, Math.max(8, 0.7 * step)), font = (px, weight = 400) => `${weight} ${px}px ${style.fontFamily}`;
  const every = step >= 8 ? 1 : Math.ceil(12 / step);
  const most = token ? largest(Array.from({ length: T }, (_, i) => values[partner(from, i, T)])) : 1;
  for (const [name, x, align, away] of [["query", margin - 6, "right", -1], ["key", side - margin + 6, "left", 1]]) {
    context.textAlign = align;
    for (let i = 0; i < T; i += every) {
      const here = token && token.side === name && token.at === i, other = token && token.side !== name;
      context.fillStyle = here ? style.getPropertyValue("--here") : style.color;
      context.font = font(size, here ? 700 : 400);
      context.fillText(every === 1 ? tokens[i] : String(i), x, y(i), margin - 8);
      if (!other || side < NUMBERS_FROM || every > 1 || words) continue;
      const value = values[partner(from, i, T)];
      context.font = font(Math.min(11, size), Math.abs(value) === most ? 700 : 400);
      context.fillText(both ? signed(value, 3) : value.toFixed(3), x + away * 1.2 * size, y(i));
    }
  }
}

// The index of the value between the token that is pointed at and the i-th of the other side.
const partner = (from, i, T) => from + (token.side === "query" ? token.at * T + i : i * T + token.at);

// The token that a pointer means: the half that it is in says which side.
function tokenUnder(canvas, event, T) {
  const box = canvas.getBoundingClientRect();
  const at = Math.floor(((event.clientY - box.top) / box.height) * T);
  if (at < 0 || at >= T) return null;
  return { side: event.clientX - box.left < box.width / 2 ? "query" : "key", at };
}

function stepToken(key, T) {
  if (!token) return { side: "query", at: 0 };
  const at = Math.min(T - 1, Math.max(0, token.at + ({ ArrowUp: -1, ArrowDown: 1 }[key] || 0)));
  return { side: { ArrowLeft: "query", ArrowRight: "key" }[key] || token.side, at };
}

// Lights one token's lines here, and its row and column in every head.
function pointToken(at) {
  if (same2(token, at)) return;
  token = at;
  window.dispatchEvent(new CustomEvent("token", { detail: at && at.at }));
  paintLarge();
}

const same2 = (a, b) => (a && b ? a.side === b.side && a.at === b.at : a === b);

// What the lines of that token say in a sentence: its strongest.
function tellToken() {
  if (!token) return t("arcs_hint");
  const from = offset(view, state.selected), size = (i) => Math.abs(shown.values[partner(from, i, view.T)]);
  let best = 0;
  for (let i = 1; i < view.T; i++) if (size(i) > size(best)) best = i;
  const [query, key] = token.side === "query" ? [token.at, best] : [best, token.at];
  const tokens = { query_token: view.tokens[query], key_token: view.tokens[key] };
  const value = shown.values[partner(from, best, view.T)];
  return t("arcs_most", { pair: t("query_key", { query, key, ...tokens }), value: shown.both ? signed(value, 4) : value.toFixed(4) });
}
