// A link that restores the view: what the server reads of it is in app.py's open_page, the rest is read here.

const wanted = { pin: null }; // what a link has asked for and has not come yet

function followLink() {
  const link = new URLSearchParams(location.search), head = /^(\d+)\.(\d+)$/.exec(link.get("head"));
  if (Object.hasOwn(QUANTITIES, link.get("show"))) state.quantity = link.get("show");
  if (link.get("as") === "arcs") state.as = "arcs";
  state.shared = link.get("scale") !== "own";
  if (head) state.selected = { layer: Number(head[1]), head: Number(head[2]) };
  const name = link.get("beside");
  if (!name) return;
  if (link.has("pinned")) {
    const off = (link.get("pinned_off") || "").split(" ").filter(Boolean).map((one) => one.split(".").map(Number));
    wanted.pin = { checkpoint: name, sequence: link.get("pinned"), off, replacement: link.get("pinned_replacement") || "zero" };
  } else compared = { kind: "checkpoint", name, of: null };
}

const written = (off) => off.map((head) => head.join(".")).join(" ");

function linkHere() {
  const link = new URLSearchParams({ checkpoint: view.checkpoint, sequence: view.sequence });
  if (view.off.length) link.set("off", written(view.off));
  if (view.off.length && view.replacement !== "zero") link.set("replacement", view.replacement);
  if (state.quantity !== "weights") link.set("show", state.quantity);
  if (!state.shared) link.set("scale", "own");
  if (state.selected) link.set("head", `${state.selected.layer}.${state.selected.head}`);
  if (state.selected && state.as === "arcs") link.set("as", "arcs");
  if (compared) link.set("beside", compared.kind === "pin" ? compared.of.checkpoint : compared.name);
  if (compared && compared.kind === "pin") {
    const { sequence, off, replacement } = compared.of;
    link.set("pinned", sequence);
    if (off.length) link.set("pinned_off", written(off));
    if (off.length) link.set("pinned_replacement", replacement);
  }
  return `${location.origin}${location.pathname}?${link}`;
}

// Where a page may not write to the clipboard, the link stands there to be copied by hand.
async function copyLink() {
  const said = $(".link-said"), link = linkHere();
  try {
    await navigator.clipboard.writeText(link);
    said.replaceChildren(t("copied"));
  } catch {
    const field = Object.assign(make("input", "small link-field"), { readOnly: true, value: link });
    field.setAttribute("aria-label", t("copy_link"));
    said.replaceChildren(field);
    field.select();
  }
}
