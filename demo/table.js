// Every head over the whole set: a table to sort, and how the sorted statistic is distributed in each head.

// column: of the table's; order: null (as the heads are counted), "descending" or "ascending".
let sorting = { column: 0, order: null };

const MEDIAN = 2; // of the five numbers that packing.over_set keeps of each distribution
const short = (x) => (x === null ? "–" : Number(x).toPrecision(3).replace("-", "−"));

// Built anew only where the set, or the language, is another.
function tellSet() {
  const box = $(".set"), set = prop("over_set"), fits = set && set.checkpoint === view.checkpoint;
  const says = JSON.stringify([fits && set.checkpoint, fits && set.count, t("layer")]);
  if (box.dataset.says === says) return;
  box.dataset.says = says;
  box.hidden = !fits;
  if (!fits) return box.replaceChildren();
  const details = make("details"), scroll = make("div", "scroll");
  details.open = Boolean(box.querySelector("details")?.open);
  const title = t("set_title", { count: set.count.toLocaleString("en"), length: set.length });
  details.append(make("summary", "", title), make("p", "", t("set_how")), scroll);
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  scroll.append(make("table"));
  box.replaceChildren(details);
  fillTable();
}

const rowsOf = ({ means, quantiles }) =>
  means.flatMap((heads, layer) => heads.map((values, head) => ({ layer, head, values, quantiles: quantiles[layer][head] })));

// Which of the statistics a column is; -1: a number of the whole set, which has no distribution.
const statisticOf = ({ columns, statistics }, k) => statistics.findIndex(({ name }) => name === columns[k].name);

function sorted(rows) {
  const { column, order } = sorting, value = (row) => row.values[column];
  if (!order) return rows;
  const least = order === "descending" ? -Infinity : Infinity; // what is not known stands last
  const keyed = rows.map((row) => [value(row) ?? least, row]);
  return keyed.sort(([a], [b]) => (order === "descending" ? b - a : a - b)).map(([, row]) => row);
}

function fillTable() {
  const set = prop("over_set"), table = $(".set table"), rows = rowsOf(set);
  sorting.column = Math.min(sorting.column, set.columns.length - 1);
  const { title } = set.columns[sorting.column], k = statisticOf(set, sorting.column);
  const headings = make("tr");
  headings.append(heading(t("set_head"), null), make("th", "spread", k < 0 ? title : t("set_spread", { statistic: title })));
  headings.lastChild.scope = "col";
  set.columns.forEach(({ title, meaning }, k) => headings.append(heading(title, k, meaning)));
  const ranges = set.columns.map((_, k) => range(rows.map(({ values }) => values[k])));
  const around = range(rows.flatMap(({ values, quantiles }) => (k < 0 ? [0, values[sorting.column]] : quantiles[k])));
  const head = make("thead"), body = make("tbody");
  head.append(headings);
  for (const row of sorted(rows)) body.append(tableRow(row, ranges, around, k));
  table.replaceChildren(head, body);
  markRow();
}

function heading(title, column, meaning = "") {
  const cell = make("th"), button = make("button", "", title), mine = column === null ? !sorting.order : sorting.column === column;
  cell.scope = "col";
  button.type = "button";
  button.title = meaning;
  cell.setAttribute("aria-sort", mine && sorting.order ? sorting.order : "none");
  button.addEventListener("click", () => {
    const again = mine && sorting.order === "descending";
    sorting = column === null ? { ...sorting, order: null } : { column, order: again ? "ascending" : "descending" };
    fillTable();
    look(statisticOf(prop("over_set"), sorting.column));
    $(`.set th:nth-child(${column === null ? 1 : column + 3}) button`).focus();
  });
  cell.append(button);
  return cell;
}

function range(values) {
  const known = values.filter((x) => x !== null);
  return { low: Math.min(...known), high: Math.max(...known) };
}

const share = (x, { low, high }) => (x === null || high === low ? 0 : (x - low) / (high - low));

function tableRow({ layer, head, values, quantiles }, ranges, around, k) {
  const row = make("tr"), name = make("th"), place = { layer, head };
  name.scope = "row";
  name.append(action(t("layer_head", place), "go", () => select(panels.find((mine) => same(mine, place)))));
  row.append(name, k < 0 ? bar(values[sorting.column], around) : spread(quantiles[k], around));
  values.forEach((value, k) => {
    const cell = make("td", "", short(value));
    cell.style.setProperty("--share", `${Math.round(22 * share(value, ranges[k]))}%`);
    row.append(cell);
  });
  Object.assign(row.dataset, { layer, head });
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

// What changes with each sequence: the dots. And which row is the large head's.
function markRow() {
  const usual = usualNow();
  for (const row of element.querySelectorAll(".set tbody tr")) {
    const { layer, head } = row.dataset, mine = same(state.selected, { layer: Number(layer), head: Number(head) });
    row.classList.toggle("selected", mine);
    row.querySelector(".go").setAttribute("aria-pressed", mine);
    const dot = row.querySelector(".here");
    if (!dot) continue;
    const k = statisticOf(prop("over_set"), sorting.column);
    const text = usual?.statistics[k]?.values[layer][head], value = Number(text?.replace("−", "-"));
    const { low, high } = dot.parentNode.dataset;
    dot.hidden = !usual || !Number.isFinite(value);
    dot.style.left = `${Math.min(100, Math.max(0, 100 * share(value, { low: Number(low), high: Number(high) })))}%`;
  }
}

// From the large head back to its row.
function toTable() {
  $(".set details").open = true;
  const { layer, head } = state.selected, row = $(`.set tr[data-layer="${layer}"][data-head="${head}"]`);
  row.querySelector(".go").focus({ preventScroll: true });
  row.scrollIntoView({ behavior: "smooth", block: "center" });
}
