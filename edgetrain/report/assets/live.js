// Asks for what is new, a second after the last answer, until the run is over.
(function () {
  const live = document.getElementById("live");
  let version = -1, failures = 0;
  const say = (text) => {
    const status = live.querySelector(".status");
    if (status) status.textContent = text;
  };
  const put = (html) => {
    const open = new Set([...live.querySelectorAll("details[open] summary")].map((each) => each.textContent));
    live.innerHTML = html;
    live.querySelectorAll("details").forEach((each) => {
      if (open.has(each.querySelector("summary").textContent)) each.open = true;
    });
    tellAll(live);
  };
  const ask = async () => {
    try {
      const answer = await fetch("state?after=" + version, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const state = await answer.json();
      failures = 0;
      // Who is reading a value keeps it for a moment.
      if (state.html && !(live.querySelector(".tip:not([hidden])") && !state.ended)) {
        version = state.version;
        put(state.html);
      }
      if (state.ended) return;
    } catch (error) {
      failures += 1;
      if (failures > 3) { say("No answer: the run has ended or was stopped"); return; }
    }
    setTimeout(ask, 1000);
  };
  ask();
})();
