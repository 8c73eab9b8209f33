// A slider over the snapshots of the checkpoint's training.
//
// The field #step is of so many steps; "" of the trained weights.

const stepOf = ({ checkpoint, steps }) => {
  const at = steps.findIndex((step) => checkpoint.endsWith(`@${step}`));
  return at < 0 ? steps.length - 1 : at; // the last snapshot is the trained model
};

// Built anew only for other steps or another language: else a hand on the slider would lose it.
function tellTraining() {
  const box = $(".training"), { steps } = view, says = JSON.stringify([t("training"), steps]);
  box.hidden = steps.length < 2;
  if (box.hidden) return box.replaceChildren();
  if (box.dataset.says !== says) {
    const label = make("label", "", `${t("training")} `), slider = make("input");
    Object.assign(slider, { type: "range", min: 0, max: steps.length - 1, step: 1, value: stepOf(view) });
    slider.addEventListener("input", () => {
      const at = Number(slider.value);
      tellStep(at);
      write("step", at === view.steps.length - 1 ? "" : view.steps[at]);
    });
    label.append(slider);
    box.replaceChildren(label, make("span", "step"));
    box.dataset.says = says;
  }
  const slider = box.querySelector("input");
  if (document.activeElement !== slider) slider.value = stepOf(view);
  tellStep(Number(slider.value));
}

function tellStep(at) {
  const { steps } = view, text = t("after_steps", { step: steps[at] });
  const said = at === steps.length - 1 ? `${text} (${t("trained")})` : text;
  $(".training .step").textContent = said;
  $(".training input").setAttribute("aria-valuetext", said);
}
