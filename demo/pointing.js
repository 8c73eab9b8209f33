// Pointing: one cell, by mouse or keys, lights its row and column in every head.

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
  const quantity = quantityNow(), other = besideFits() ? comparedNow().weights[i] : null;
  if (quantity === "norms") lines.push(make("span", "", `${t("show_norms")}: ${shown.values[i].toFixed(4)}`));
  if (quantity === "beside") lines.push(make("span", "", `${t("show_beside")}: ${signed(shown.values[i], 4)}`));
  if (quantity === "difference") lines.push(make("span", "", `${t("show_difference")}: ${signed(shown.values[i], 4)}`));
  if (other !== null) lines.push(make("span", "", `${captions()[0]} ${other.toFixed(4)}, ${signed(view.weights[i] - other, 4)}`));
  const tokens = { query_token: view.tokens[query], key_token: view.tokens[key] };
  lines.push(make("span", "", t("query_key", { query, key, ...tokens })));
  lines.push(make("span", "where", t("layer_head", mine)));
  tip.replaceChildren(...lines);
  const side = mine.canvas.clientWidth, gutter = mine.canvas.gutter ?? gutterOf(side), size = (side - gutter) / view.T;
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
