// What each head is worth: a line for each, a mark for each thing that may stand in the place of its output.

const worths = { effect: 0, method: 0, order: null }; // what sorts; order: null (as the heads are counted), or a way
const SMALL = 1e-4; // nats up to which the scale of the loss is linear; beyond, it is logarithmic

// For each effect: how a number is placed on its line, what is written of it, and what stands under the line.
const SCALES = {
  accuracy_drop: { place: (x) => x, write: (x) => `${short(100 * x)} %`, ticks: () => [] },
  loss_increase: {
    place: (x) => Math.sign(x) * (Math.abs(x) <= SMALL ? Math.abs(x) / SMALL : 1 + Math.log10(Math.abs(x) / SMALL)),
    write: short,
    ticks: ({ low, high }) => [-1, -0.01, 0, SMALL, 0.01, 1].filter((x) => SCALES.loss_increase.place(x) >= low && SCALES.loss_increase.place(x) <= high),
  },
};

function tellWorth() {
  tellBox(".worths", setNow(), t("worth_title"), t("worth_how"), fillWorth);
}

function fillWorth(inside) {
  const set = setNow(), studies = set && studiesOf(set);
  if (!studies) return inside.replaceChildren(waitingLine());
  const table = make("table"), head = make("thead"), above = make("tr"), headings = make("tr"), body = make("tbody");
  const rows = byHead(studies.worth), { effect, method, order } = worths; // values: of method and effect, with its ends
  const again = (chosen) => () => {
    Object.assign(worths, chosen);
    fillWorth(inside);
    inside.querySelector(chosen.order ? `[data-sorts="${chosen.effect} ${chosen.method}"] button` : "th button").focus();
  };
  const first = heading(t("set_head"), { sort: again({ order: null }) });
  first.rowSpan = 2;
  above.append(first);
  const arounds = studies.effects.map((name, e) => {
    const ends = rows.flatMap(({ values }) => values.flatMap((one) => one[e])).filter((x) => x !== null);
    const around = range([0, ...ends].map(SCALES[name].place));
    above.append(Object.assign(make("th", "effect", titleOf(set, name)), { scope: "colgroup", colSpan: 1 + studies.methods.length }));
    headings.append(axis(name, around));
    studies.methods.forEach((what, m) => {
      const mine = order && effect === e && method === m, next = mine && order === "descending" ? "ascending" : "descending";
      const cell = heading(what === "zero" ? t("gives_nothing") : t("gives_mean"), { order: mine ? order : null, sort: again({ effect: e, method: m, order: next }) });
      cell.querySelector("button").prepend(make("i", `sign ${what}`));
      cell.dataset.sorts = `${e} ${m}`;
      headings.append(cell);
    });
    return around;
  });
  head.append(above, headings);
  const shown = order ? inOrder(rows, ({ values }) => values[method][effect][0], order) : rows;
  for (const row of shown) body.append(worthRow(row, studies, arounds));
  table.append(head, body);
  inside.replaceChildren(scrolling(t("worth_title"), table));
  markHead();
}

// The places of round numbers, over the lines.
function axis(name, around) {
  const cell = make("th", "spread"), box = make("i", "axis");
  cell.scope = "col";
  cell.setAttribute("aria-label", t("drawn"));
  for (const x of SCALES[name].ticks(around)) {
    const tick = make("b", "tick", x === SMALL ? "10⁻⁴" : String(x).replace("-", "−"));
    tick.style.left = `${100 * share(SCALES[name].place(x), around)}%`;
    box.append(tick);
  }
  cell.append(box);
  return cell;
}

function worthRow({ layer, head, values }, studies, arounds) {
  const find = () => $(`.worths tr[data-layer="${layer}"][data-head="${head}"]`);
  const row = headRow({ layer, head }, () => goTo({ layer, head }, fromBox(".worths", () => t("worth_title"), find)));
  studies.effects.forEach((name, e) => {
    const { place, write } = SCALES[name], cell = make("td", "spread"), box = make("i");
    cell.setAttribute("aria-hidden", "true");
    const at = (x) => `${100 * share(place(x), arounds[e])}%`;
    studies.methods.forEach((method, m) => {
      const [mean, low, high] = values[m][e], part = (className, a, b) => {
        const one = make("b", `${className} ${method}`);
        one.style.left = at(Math.min(a, b));
        one.style.right = `calc(100% - ${at(Math.max(a, b))})`;
        box.append(one);
      };
      part("stem", 0, mean);
      if (low !== null) part("ends", low, high);
      part("sign", mean, mean);
    });
    const zero = make("b", "zero-line");
    zero.style.left = at(0);
    box.append(zero);
    cell.append(box);
    row.append(cell, ...studies.methods.map((_, m) => make("td", "", write(values[m][e][0]))));
  });
  return row;
}
