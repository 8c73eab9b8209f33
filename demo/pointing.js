// Pointing: one cell, by mouse or keys, lights its row and column in every head.

let cursor = null; // the cell that is pointed at, {query, key}

function step(mine, event) {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!move) return;
  event.preventDefault();
  const keep = (at, count) => Math.min(count - 1, Math.max(0, at));
  const { query, key } = cursor ? { query: cursor.query + move[0], key: cursor.key + move[1] } : { query: 0, key: 0 };
  point(mine, { query: keep(query, view.R), key: keep(key, view.T) });
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
  const tokens = { query_token: view.tokens[query], key_token: view.keys[key] };
  lines.push(make("span", "", t("query_key", { query, key, ...tokens })));
  lines.push(make("span", "where", placeName(mine)));
  tip.replaceChildren(...lines);
  const side = mine.canvas.clientWidth, { left, top } = mine.canvas.room ?? plainRoom(side);
  place(mine.canvas, left + ((key + 0.5) * (side - left)) / view.T, top + ((query + 0.5) * (side - top)) / view.R);
}

// A row, a column, or both.
function light({ query, key }) {
  const side = panels[0].canvas.clientWidth, gutter = gutterOf(side);
  root.style.setProperty("--gutter", `${gutter}px`);
  root.style.setProperty("--height", `${(side - gutter) / view.R}px`);
  root.style.setProperty("--width", `${(side - gutter) / view.T}px`);
  root.style.setProperty("--query", query ?? 0);
  root.style.setProperty("--key", key ?? 0);
  root.classList.toggle("no-row", query === undefined);
  root.classList.toggle("no-column", key === undefined);
}

// Beside the cell, never over it, and never outside the component.
function place(canvas, x, y) {
  const outer = root.getBoundingClientRect(), box = canvas.getBoundingClientRect();
  const left = box.left - outer.left + x, top = box.top - outer.top + y, gap = 14;
  const right = left + gap + tip.offsetWidth <= outer.width;
  tip.style.left = `${Math.max(0, right ? left + gap : left - gap - tip.offsetWidth)}px`;
  tip.style.top = `${top - gap - tip.offsetHeight >= 0 ? top - gap - tip.offsetHeight : top + gap}px`;
}

// A token that is pointed at elsewhere lights up in every head, {query, key} as in `light`; null where none is.
function lightToken(cell) {
  root.classList.toggle("pointing", Boolean(cell));
  if (cell) light(cell);
}

window.addEventListener("token", ({ detail }) => {
  const here = view && Number.isInteger(detail) && detail < view.T;
  lightToken(here ? { query: detail, key: detail } : null);
});
