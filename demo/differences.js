// Where a head reads two groups of sequences differently: a row for each head and statistic, sorted by how much.

const LABEL = "label=";
// What is chosen: the pair of groups, one statistic or "" for all; the column that sorts, and how.
const differing = { pair: 0, statistic: "", by: "cohens_d", order: "descending" };

function tellDifferences() {
  tellBox(".differing", setNow(), t("differences_title"), t("differences_how"), fillDifferences);
}

const groupName = (group) =>
  group.startsWith(LABEL) ? named(group.slice(LABEL.length)) : group === "correct" ? t("answers_right") : t("answers_wrong");

let rowsOfDifferences = {}; // of which studies, and the rows
function differencesOf(studies) {
  if (rowsOfDifferences.of !== studies) {
    const columns = Object.entries(studies.differences), count = studies.differences.layer.length;
    const rows = Array.from({ length: count }, (_, i) => Object.fromEntries(columns.map(([name, values]) => [name, values[i]])));
    rowsOfDifferences = { of: studies, is: rows };
  }
  return rowsOfDifferences.is;
}

function fillDifferences(inside) {
  const set = setNow(), studies = set && studiesOf(set);
  if (!studies) return inside.replaceChildren(waitingLine());
  const all = differencesOf(studies), pairs = [...new Set(all.map(({ group_a, group_b }) => JSON.stringify([group_a, group_b])))];
  if (!all.length) return inside.replaceChildren(make("p", "", t("differences_none")));
  differing.pair = Math.min(differing.pair, pairs.length - 1);
  const [a, b] = JSON.parse(pairs[differing.pair]), names = [...new Set(all.map(({ statistic }) => statistic))];
  if (!names.includes(differing.statistic)) differing.statistic = "";
  const again = (name) => (value) => {
    differing[name] = name === "pair" ? Number(value) : value;
    fillDifferences(inside);
    inside.querySelector(`.choose-${name}`).focus();
  };
  const choices = make("div", "choices"), told = (pair) => JSON.parse(pair).map(groupName);
  const pairNames = pairs.map((pair, i) => [i, t("a_minus_b", { a: told(pair)[0], b: told(pair)[1] })]);
  const statistics = [["", t("all_statistics")], ...names.map((name) => [name, titleOf(set, name)])];
  const which = listOf(t("compared_groups"), pairNames, differing.pair, again("pair"));
  const what = listOf(t("statistic"), statistics, differing.statistic, again("statistic"));
  which.classList.add("choose-pair");
  what.classList.add("choose-statistic");
  choices.append(which, what);
  const rows = all.filter((row) => row.group_a === a && row.group_b === b && (!differing.statistic || row.statistic === differing.statistic));
  const tested = "p_adjusted" in studies.differences, said = make("p", "", tested ? t("differences_tested") : t("differences_population"));
  const table = make("table");
  inside.replaceChildren(choices, said, scrolling(t("differences_title"), table));
  fillDifferenceTable(table, set, rows, tested);
}

// What a column is sorted by: sizes, whatever the sign.
const SORTED_BY = {
  head: ({ layer, head }) => 1000 * layer + head,
  statistic: ({ statistic }, set) => set.statistics.findIndex(({ name }) => name === statistic),
  difference: ({ difference }) => Math.abs(difference),
  cohens_d: ({ cohens_d }) => Math.abs(cohens_d),
  p_adjusted: ({ p_adjusted }) => p_adjusted,
};

function fillDifferenceTable(table, set, rows, tested) {
  const head = make("thead"), headings = make("tr"), body = make("tbody"), most = Math.max(...rows.map(SORTED_BY.cohens_d));
  const titles = { head: t("set_head"), statistic: t("statistic"), cohens_d: t("cohens_d"), difference: t("difference") };
  if (tested) titles.p_adjusted = t("p_adjusted");
  for (const [by, title] of Object.entries(titles)) {
    const mine = differing.by === by, order = mine ? differing.order : null;
    const sort = () => {
      const first = ["head", "statistic", "p_adjusted"].includes(by) ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      Object.assign(differing, { by, order: order === first ? other : first });
      fillDifferenceTable(table, set, rows, tested);
      table.querySelector(`th[data-by="${by}"] button`).focus();
    };
    const cell = heading(title, { order, sort });
    cell.dataset.by = by;
    headings.append(cell);
    if (by === "cohens_d") headings.append(Object.assign(make("th", "spread", t("drawn")), { scope: "col" }));
  }
  headings.append(Object.assign(make("th", "", t("sequences")), { scope: "col" }));
  head.append(headings);
  for (const row of inOrder(rows, (one) => SORTED_BY[differing.by](one, set), differing.order)) {
    body.append(differenceRow(row, set, tested, { low: -most, high: most }));
  }
  table.replaceChildren(head, body);
  markHead();
}

function differenceRow(row, set, tested, around) {
  const { layer, head, statistic } = row, find = () => $(`.differing tr[data-statistic="${CSS.escape(statistic)}"][data-layer="${layer}"][data-head="${head}"]`);
  const line = headRow({ layer, head }, () => {
    goTo({ layer, head }, fromBox(".differing", () => t("differences_title"), find));
    look(set.statistics.findIndex(({ name }) => name === statistic));
  });
  line.dataset.statistic = statistic;
  const size = [make("td", "", short(row.cohens_d)), bar(row.cohens_d, around)];
  line.append(make("td", "named", titleOf(set, statistic)), ...size, make("td", "", short(row.difference)));
  if (tested) line.append(make("td", "", row.p_adjusted === 0 ? "< 1e−300" : short(row.p_adjusted)));
  const counts = [row.n_a, row.n_b].map((n) => n.toLocaleString("en")).join(" / ");
  line.append(make("td", "", counts));
  return line;
}
