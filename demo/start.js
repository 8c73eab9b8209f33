// Starts the whole: runs last.

function spoken() {
  draw();
  buildLarge();
  paintLarge();
}

let width = 0;
function resized() {
  if (root.clientWidth !== width) paint(), paintGrowth();
  width = root.clientWidth;
}

new ResizeObserver(resized).observe(root);
document.fonts.ready.then(paint);
new MutationObserver(paint).observe(document.body, { attributeFilter: ["class"] }); // light and dark
watch(["value", "over_set"], draw);
watch("words", spoken);
watch("effects", gotEffects);
watch("usual", () => view && tellUsual());
watch("beside", gotBeside);
watch("studies", () => view && gotStudies());
followLink();
draw();
