// Types a sequence for the visitor: the text field is the one place where it stands, and all else follows it.
function typeIn(text) {
  const field = document.querySelector("#sequence textarea, #sequence input");
  const prototype = field.tagName === "INPUT" ? HTMLInputElement.prototype : HTMLTextAreaElement.prototype;
  Object.getOwnPropertyDescriptor(prototype, "value").set.call(field, text);
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
