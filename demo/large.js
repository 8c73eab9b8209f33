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
  box.replaceChildren(top, picture, saveRow(t("save_head"), ["png", "svg"], chosen));
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
watch("value", draw);
watch("words", spoken);
watch("effects", tellEffects);
draw();
