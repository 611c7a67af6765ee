"use strict";
// Charts tell what is under the pointer, or under the arrow keys. Everything else works without this script.
function tell(plot) {
  const source = document.getElementById(plot.dataset.points);
  const area = plot.querySelector(".area");
  if (!source || !area) return;
  const points = JSON.parse(source.textContent);
  if (!points.length) return;
  const cursor = area.querySelector(".cursor"), tip = area.querySelector(".tip");
  let shown = -1;
  const nearest = (at) => {
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < at) low = middle + 1; else high = middle;
    }
    return low > 0 && at - points[low - 1][0] < points[low][0] - at ? low - 1 : low;
  };
  const line = (tag, text) => { const made = document.createElement(tag); made.textContent = text; return made; };
  const show = (index) => {
    shown = Math.max(0, Math.min(points.length - 1, index));
    const [at, title, rows] = points[shown];
    tip.replaceChildren(line("b", title));
    for (const [name, value] of rows) {
      const row = document.createElement("div");
      row.append(line("span", name), line("em", value));
      tip.append(row);
    }
    cursor.hidden = tip.hidden = false;
    const x = at * area.clientWidth;
    cursor.style.left = x + "px";
    const width = tip.offsetWidth, right = x + 12 + width <= area.clientWidth;
    tip.style.left = Math.max(0, right ? x + 12 : x - 12 - width) + "px";
  };
  const hide = () => { cursor.hidden = tip.hidden = true; };
  const follow = (event) => {
    const box = area.getBoundingClientRect();
    show(nearest((event.clientX - box.left) / box.width));
  };
  area.addEventListener("pointermove", follow);
  area.addEventListener("pointerdown", follow);
  area.addEventListener("pointerleave", hide);
  area.addEventListener("blur", hide);
  area.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: shown + 1, ArrowLeft: shown - 1, Home: 0, End: points.length - 1 };
    if (event.key in moves) { show(moves[event.key]); event.preventDefault(); }
    if (event.key === "Escape") hide();
  });
}
function tellAll(root) { root.querySelectorAll(".plot[data-points]").forEach(tell); }
tellAll(document);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
