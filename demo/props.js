// What the server tells a component, and words in the page's language. Runs first in a js_on_load: Gradio hands in
// element, props, trigger, watch. Text from outside reaches the page through textContent and fillText alone.
//
// Whatever is more than a word comes as a line of JSON: Gradio copies every property at every event, number by number.

const parsed = {};

function prop(name) {
  const text = props[name];
  if (parsed[name]?.text !== text) parsed[name] = { text, is: text ? JSON.parse(text) : null };
  return parsed[name].is;
}

const make = (tag, className = "", text = "") =>
  Object.assign(document.createElement(tag), { className, textContent: text });
const t = (key, values = {}) => prop("words")[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
