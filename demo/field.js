// What is asked stands in the page's fields, seen and hidden, and nowhere else: all that is shown follows them.

const field = (id) => document.querySelector(`#${id} textarea, #${id} input`);

// Writes as a visitor would.
function write(id, text) {
  const prototype = field(id).tagName === "INPUT" ? HTMLInputElement.prototype : HTMLTextAreaElement.prototype;
  Object.getOwnPropertyDescriptor(prototype, "value").set.call(field(id), text);
  field(id).dispatchEvent(new Event("input", { bubbles: true }));
}
