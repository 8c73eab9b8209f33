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
    const [off, replacement] = [link.get("pinned_off") || "", link.get("pinned_replacement") || "zero"];
    wanted.pin = { checkpoint: name, sequence: link.get("pinned"), off, replacement };
    if (link.has("pinned_second")) wanted.pin.second = link.get("pinned_second");
  } else compared = { kind: "checkpoint", name, of: null };
}

function linkHere() {
  const link = new URLSearchParams({ checkpoint: view.checkpoint, sequence: view.sequence });
  if (view.second !== undefined) link.set("second", view.second);
  if (view.kind) link.set("kind", view.kind);
  if (view.off) link.set("off", view.off);
  if (view.off && view.replacement !== "zero") link.set("replacement", view.replacement);
  if (state.quantity !== "weights") link.set("show", state.quantity);
  if (!state.shared) link.set("scale", "own");
  if (state.selected) link.set("head", `${state.selected.layer}.${state.selected.head}`);
  if (state.selected && state.as === "arcs") link.set("as", "arcs");
  if (compared) link.set("beside", compared.kind === "pin" ? compared.of.checkpoint : compared.name);
  if (compared && compared.kind === "pin") {
    const { sequence, off, replacement, second } = compared.of;
    link.set("pinned", sequence);
    if (second !== undefined) link.set("pinned_second", second);
    if (off) link.set("pinned_off", off);
    if (off) link.set("pinned_replacement", replacement);
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
