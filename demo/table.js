// Every head over the whole set: a table to sort, and how the sorted statistic is distributed in each head.

// column: of the table's; order: null (as the heads are counted), "descending" or "ascending".
let sorting = { column: 0, order: null };

const MEDIAN = 2; // of the five numbers that packing.over_set keeps of each distribution
const short = (x) => (x === null ? "–" : Number(x).toPrecision(3).replace("-", "−"));

function tellSet() {
  const set = setNow(), found = prop("over_set"), why = found?.checkpoint === view.checkpoint && found.why;
  const title = set ? t("set_title", { count: set.count.toLocaleString("en"), length: set.length }) : "";
  tellBox(".set", set, title, t("set_how"), (inside) => {
    inside.replaceChildren(scrolling(title, make("table")));
    fillTable();
  });
  $(".why").hidden = !why;
  $(".why").textContent = why || "";
}

const rowsOf = ({ means, quantiles }) => byHead(means).map((row) => ({ ...row, quantiles: quantiles[row.layer][row.head] }));

// Which of the statistics a column is; -1: a number of the whole set, which has no distribution.
const statisticOf = ({ columns, statistics }, k) => statistics.findIndex(({ name }) => name === columns[k].name);

function fillTable() {
  const set = prop("over_set"), table = $(".set table"), rows = rowsOf(set);
  sorting.column = Math.min(sorting.column, set.columns.length - 1);
  const { column, order } = sorting, { title } = set.columns[column], k = statisticOf(set, column);
  const headings = make("tr"), sort = (column, again) => () => sortTable(column, again);
  const spreadHeading = make("th", "spread", k < 0 ? title : t("set_spread", { statistic: title }));
  spreadHeading.scope = "col";
  headings.append(heading(t("set_head"), { sort: sort(null) }), spreadHeading);
  set.columns.forEach(({ title, meaning }, k) => {
    headings.append(heading(title, { order: column === k ? order : null, meaning, sort: sort(k, column === k && order === "descending") }));
  });
  const ranges = set.columns.map((_, k) => range(rows.map(({ values }) => values[k])));
  const around = range(rows.flatMap(({ values, quantiles }) => (k < 0 ? [0, values[column]] : quantiles[k])));
  const head = make("thead"), body = make("tbody");
  head.append(headings);
  const shown = order ? inOrder(rows, ({ values }) => values[column], order) : rows;
  for (const row of shown) body.append(tableRow(row, ranges, around, k));
  table.replaceChildren(head, body);
  markHead();
  markDots();
}

function sortTable(column, again) {
  sorting = column === null ? { ...sorting, order: null } : { column, order: again ? "ascending" : "descending" };
  fillTable();
  look(statisticOf(prop("over_set"), sorting.column));
  $(`.set th:nth-child(${column === null ? 1 : column + 3}) button`).focus();
}

function range(values) {
  const known = values.filter((x) => x !== null);
  return { low: Math.min(...known), high: Math.max(...known) };
}

const share = (x, { low, high }) => (x === null || high === low ? 0 : (x - low) / (high - low));

function tableRow({ layer, head, values, quantiles }, ranges, around, k) {
  const row = headRow({ layer, head }, () => goTo({ layer, head }));
  row.append(k < 0 ? bar(values[sorting.column], around) : spread(quantiles[k], around));
  values.forEach((value, k) => {
    const cell = make("td", "", short(value));
    cell.style.setProperty("--share", `${Math.round(22 * share(value, ranges[k]))}%`);
    row.append(cell);
  });
  return row;
}

// From the 1st to the 99th percentile a line, the middle half thick, the median a stroke; a dot is this sequence.
function spread(quantiles, around) {
  if (quantiles.some((x) => x === null)) return drawn(around);
  const cell = drawn(around, ["all", quantiles[0], quantiles[4]], ["half", quantiles[1], quantiles[3]], ["median", quantiles[MEDIAN], quantiles[MEDIAN]]);
  cell.firstChild.append(Object.assign(make("b", "here"), { hidden: true }));
  return cell;
}

const bar = (x, around) => (x === null ? drawn(around) : drawn(around, ["half", Math.min(0, x), Math.max(0, x)]));

// Parts, each a class from one number to another, on a line from `low` to `high`.
function drawn(around, ...parts) {
  const cell = make("td", "spread"), box = make("i"), at = (x) => `${100 * share(x, around)}%`;
  cell.setAttribute("aria-hidden", "true");
  for (const [name, from, to] of parts) {
    const part = make("b", name);
    part.style.left = at(from);
    part.style.right = `calc(100% - ${at(to)})`;
    box.append(part);
  }
  box.dataset.low = around.low;
  box.dataset.high = around.high;
  cell.append(box);
  return cell;
}

// What changes with each sequence.
function markDots() {
  for (const dot of element.querySelectorAll(".set .here")) {
    const { layer, head } = dot.closest("tr").dataset, k = statisticOf(prop("over_set"), sorting.column);
    const { value } = usualOf(k, { layer, head }), { low, high } = dot.parentNode.dataset;
    dot.hidden = !Number.isFinite(value);
    dot.style.left = `${Math.min(100, Math.max(0, 100 * share(value, { low: Number(low), high: Number(high) })))}%`;
  }
}

// From the large head to its row.
function toTable() {
  const { layer, head } = state.selected;
  fromBox(".set", "", () => $(`.set tr[data-layer="${layer}"][data-head="${head}"]`)).to();
}
