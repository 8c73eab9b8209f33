// The sequence as buttons, in step with the text field; below each what changing it would do to the margin.
//
// props.value: {tokens, vocab, names: {token: how it is written}, separator, state}, or "". props.flips: {of: state, tokens: [change, …], turns: […]}.

const root = element.querySelector(".cells");
const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(1)}`;

function draw() {
  if (!prop("value") || !prop("words")) return;
  const { tokens, vocab, names } = prop("value");
  root.setAttribute("aria-label", t("cells"));
  while (root.children.length > tokens.length) root.lastChild.remove();
  while (root.children.length < tokens.length) root.append(cell(root.children.length));
  tokens.forEach((token, i) => {
    root.children[i].querySelector("b").textContent = names[token];
    root.children[i].classList.toggle("filled", token === vocab[1]);
  });
  root.dataset.tokens = tokens.join(" ");
  tell();
}

function cell(i) {
  const button = make("button", "cell");
  button.type = "button";
  button.append(make("b"), make("span", "change"));
  button.addEventListener("click", () => turn(i));
  button.addEventListener("keydown", (event) => {
    const next = { ArrowLeft: button.previousSibling, ArrowRight: button.nextSibling }[event.key];
    if (next) next.focus();
  });
  const light = (at) => () => window.dispatchEvent(new CustomEvent("token", { detail: at }));
  for (const type of ["pointerenter", "focus"]) button.addEventListener(type, light(i));
  for (const type of ["pointerleave", "blur"]) button.addEventListener(type, light(null));
  return button;
}

function turn(i) {
  const { vocab, separator } = prop("value"), tokens = [...prop("value").tokens];
  tokens[i] = vocab[(vocab.indexOf(tokens[i]) + 1) % vocab.length];
  write("sequence", tokens.join(separator));
}

// Numbers of an earlier sequence are never shown beside this one.
function tell() {
  const { tokens, vocab, names, state } = prop("value");
  const flips = prop("flips")?.of === state ? prop("flips") : null;
  const most = flips ? Math.max(1e-9, ...flips.tokens.map(Math.abs)) : 1;
  tokens.forEach((token, i) => {
    const button = root.children[i], change = flips ? signed(flips.tokens[i]) : "";
    const other = names[vocab[(vocab.indexOf(token) + 1) % vocab.length]];
    button.querySelector(".change").textContent = change;
    button.classList.toggle("turns", Boolean(flips && flips.turns[i]));
    button.style.setProperty("--worth", flips ? Math.abs(flips.tokens[i]) / most : 0);
    const effect = flips ? `, ${t("cell_effect", { change })}` : "";
    button.setAttribute("aria-label", t("cell", { i, token: names[token], other }) + effect);
  });
  root.dataset.flips = flips ? flips.of : "";
}

watch(["value", "words"], draw);
watch("flips", () => prop("value") && prop("words") && tell());
draw();
