// Whether what is shown answers what is asked. Each answer comes with its question as props.asked, also where it is a refusal.
//
// Two questions may be on their way at once, and the later answer may be the earlier question's: what is asked now is then
// asked again.
//
// Event: answered brings what the fields hold as "asked".

const again = { of: null, times: 0 }; // which question has been asked again, once, and is not answered yet

window.addEventListener("asked", ({ detail }) => {
  const now = JSON.stringify(detail);
  if (JSON.stringify(prop("asked")) === now) again.of = null;
  else if (again.of !== now) {
    again.of = now;
    write("again", String(++again.times));
  }
});

watch("asked", () => trigger("answered"));
