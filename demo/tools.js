// What stands over and under the grid: choices, buttons, files.

// A question with a few answers, side by side: [[value, text], …].
function choice(label, value, answers, onChoice) {
  const group = make("fieldset", "choice"), name = `choice-${label}`;
  group.append(make("legend", "", label));
  for (const [answer, text] of answers) {
    const box = make("label"), input = make("input");
    Object.assign(input, { type: "radio", name, value: answer, checked: answer === value });
    input.addEventListener("change", () => onChoice(answer));
    box.append(input, make("span", "", text));
    group.append(box);
  }
  return group;
}

function action(text, className, onClick) {
  const button = make("button", `small ${className}`, text);
  button.type = "button";
  button.addEventListener("click", onClick);
  return button;
}

// A row of buttons that save a file; `head` is a place {layer, head}, or null for all of them.
function saveRow(label, endings, head) {
  const row = make("div", "save");
  row.append(make("span", "", label));
  for (const ending of endings) row.append(action(ending.toUpperCase(), "", () => save(ending, head)));
  return row;
}

function save(ending, head) {
  const other = comparedNow();
  trigger("save", {
    ending,
    head: head && [head.layer, head.head],
    shared: state.shared,
    quantity: quantityNow(),
    arcs: Boolean(head) && state.as === "arcs",
    beside: other && questionOf(other),
  });
}

// Sequences that are one click away.
function tryRow(label, sequences) {
  const row = make("div", "save");
  row.append(make("span", "", label));
  for (const sequence of sequences) row.append(action(sequence, "sequence", () => write("sequence", sequence)));
  return row;
}

// Built anew only where what they say has changed: else the keyboard's focus would be lost at each edit.
function buildTools() {
  compareLine();
  const quantities = Object.keys(QUANTITIES).filter((name) => QUANTITIES[name].there(view));
  const { layers, heads, checkpoint, off, replacement, kind } = view;
  const says = JSON.stringify([t("layer"), checkpoint, kind, layers, heads, quantities, quantityNow(), state.shared, off, replacement, Boolean(view.means), prop("checkpoints"), compared && compared.name]);
  if ($(".tools").dataset.says === says) return;
  $(".tools").dataset.says = says;
  const focused = root.contains(document.activeElement) ? document.activeElement : null;
  const again = focused && focused.name ? `input[name="${focused.name}"][value="${focused.value}"]` : null;
  const scale = choice(t("scale"), String(state.shared), [["true", t("scale_shared")], ["false", t("scale_own")]], (answer) => {
    state.shared = answer === "true";
    paint();
  });
  const names = {
    weights: t("show_weights"),
    norms: t("show_norms"),
    difference: t("show_difference"),
    beside: t("show_beside"),
  };
  const what = choice(t("show"), quantityNow(), quantities.map((name) => [name, names[name]]), (answer) => {
    state.quantity = answer;
    measure();
    paint();
  });
  const fills = [["zero", t("replacement_zero")], ["mean", t("replacement_mean")]];
  const filling = choice(t("replacement"), view.replacement, fills, (answer) => write("replacement", answer));
  filling.hidden = !view.off.length || !view.means;
  const legend = make("div", "legend");
  legend.setAttribute("role", "img");
  legend.setAttribute("aria-label", t("legend"));
  legend.append(make("span", "low"), make("span", "bar"), make("span", "top"));
  const allOn = action(t("all_on"), "all-on", () => write("off", ""));
  allOn.hidden = !view.off.length;
  const kinds = view.kinds.map((kind) => [kind, t(`kind_${kind}`)]);
  const which = kinds.length ? [choice(t("kind"), view.kind, kinds, (kind) => write("kind", kind))] : [];
  $(".tools").replaceChildren(...which, what, scale, legend, filling, allOn);
  const near = view.means ? [tryRow(t("nearest_wrong"), prop("over_set").nearest_wrong)] : [];
  const take = saveRow(t("save_all"), ["png", "svg", "pdf", "csv", "npz"], null), said = make("span", "link-said");
  said.setAttribute("role", "status");
  take.append(action(t("copy_link"), "link", copyLink), said);
  $(".files").replaceChildren(take, compareRow(), ...near);
  if (again) $(again)?.focus();
}
