// Two readings side by side: what was pinned, or what another checkpoint says of the same sequence, and what is there now.
//
// Event: compare {of}, as questionOf makes it, asks for a reading, which comes as props.beside.

// null | {kind: "pin", of: an unpacked reading} | {kind: "checkpoint", name, of: …, or null until it is there, refused}
let compared = null;

const sameShape = (a, b) => ["layers", "heads", "R", "T"].every((size) => a[size] === b[size]);
const hasHead = (reading, { layer, head }) => layer < reading.layers && head < reading.heads;

// The other reading; null while that of another sequence or kind of attention stands in its place.
function comparedNow() {
  if (!compared || !compared.of || !view || compared.of.kind !== view.kind) return null;
  return compared.kind === "pin" || compared.of.sequence === view.sequence ? compared.of : null;
}

function besideFits() {
  const other = comparedNow();
  return Boolean(other && sameShape(other, view));
}

const captions = () =>
  compared.kind === "pin"
    ? [t("pinned"), t("now"), t("now_minus_pinned")]
    : [compared.name, view.checkpoint, t("a_minus_b", { a: view.checkpoint, b: compared.name })];

function pin() {
  compared = { kind: "pin", of: view };
  comparing();
  $(".compare .unpin").focus();
}

function besideCheckpoint(name) {
  compared = name ? { kind: "checkpoint", name, of: null } : null;
  askBeside();
  comparing();
}

function unpin() {
  compared = wanted.pin = null;
  comparing();
  $(".compare-with .pin").focus();
}

function askPin(question) {
  wanted.pin = { ...question, kind: view.kind };
  trigger("compare", { of: wanted.pin });
}

// Asks for what is compared with, where it is not there: of the present sequence and kind, or in the present language.
function askBeside() {
  if (!compared || !view) return;
  if (compared.kind === "pin" && !comparedNow()) askPin(questionOf(compared.of));
  if (compared.kind === "checkpoint" && !comparedNow()) {
    const had = prop("beside");
    const is = had && !had.refused && had.checkpoint === compared.name && had.sequence === view.sequence;
    if (is) compared.of = unpack(had);
    else trigger("compare", { of: { checkpoint: compared.name, sequence: view.sequence, off: "", replacement: "zero" } });
  }
}

function gotBeside() {
  const found = prop("beside");
  if (!found) return;
  if (wanted.pin && !found.refused && found.kind === wanted.pin.kind) compared = { kind: "pin", of: unpack(found) };
  else if (compared && compared.kind === "checkpoint" && found.checkpoint === compared.name && found.sequence === view.sequence) {
    compared.of = found.refused ? null : unpack(found);
    compared.refused = found.refused;
  } else return;
  wanted.pin = null;
  comparing();
}

// Draws again what hangs on the other reading.
function comparing() {
  buildTools();
  measure();
  paint();
}

// ---------------------------------------------------------------- what it says

const named = (prediction) => prop("words")[`class:${prediction}`] || prediction;
const textOf = ({ sequence, second }) => (second ? `${sequence} → ${second}` : sequence);
const answered = ({ prediction, margin, digits }, name) => {
  const box = make("span", "answered");
  box.append(make("code", "", name), ` ${named(prediction)} ${signed(margin, digits)}`);
  return box;
};

// Over the grid while something is compared: both answers.
function compareLine() {
  const line = $(".compare");
  line.hidden = !compared;
  if (!compared) return line.replaceChildren();
  const other = comparedNow(), pinned = compared.kind === "pin";
  const parts = [make("b", "", pinned ? t("pinned") : t("compared_with", { name: compared.name }))];
  if (other) parts.push(answered(other, pinned ? textOf(other) : other.checkpoint), make("span", "", t("now")));
  if (other) parts.push(answered(view, pinned ? textOf(view) : view.checkpoint));
  if (compared.refused) parts.push(make("span", "problem", compared.refused));
  line.replaceChildren(...parts, action(pinned ? t("unpin") : t("compare_no_more"), "unpin", unpin));
}

// Under the grid: what one may compare with.
function compareRow() {
  const row = make("div", "save compare-with");
  row.append(make("span", "", t("compare")), action(t("pin"), "pin", pin));
  const others = (prop("checkpoints") || []).filter((name) => name !== view.checkpoint);
  if (others.length) {
    const label = make("label", "", `${t("compare_checkpoint")} `), list = make("select", "small");
    for (const name of ["", ...others]) list.append(Object.assign(make("option", "", name || "–"), { value: name }));
    list.value = compared && compared.kind === "checkpoint" ? compared.name : "";
    list.addEventListener("change", () => besideCheckpoint(list.value));
    label.append(list);
    row.append(label);
  }
  return row;
}
