"use strict";
// The theme of Airflow, which keeps it in the same storage; without one the system's.
const setTheme = () => {
  const theme = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
};
setTheme();
addEventListener("storage", setTheme);

// A frame of Airflow cannot leave itself by a link: a link made in the page around it can.
addEventListener("click", (event) => {
  const link = event.target.closest && event.target.closest("a[data-airflow]");
  if (!link || parent === self) return;
  event.preventDefault();
  const outer = parent.document.createElement("a");
  outer.href = link.href;
  parent.document.body.append(outer);
  outer.click();
  outer.remove();
});

// A slider over each curve says what another delay would have saved; the same numbers stand in its table.
const addSliders = () => document.querySelectorAll("figure[data-say=say]").forEach((figure) => {
  const say = document.getElementById(figure.dataset.say);
  const svg = figure.querySelector("svg.chart");
  const dots = [...svg.querySelectorAll("circle.dot")];
  const rows = [...figure.querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent));
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: dots.length - 1, value: 0 });
  slider.setAttribute("aria-label", "Delay of the watermark");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  line.setAttribute("class", "cut");
  line.setAttribute("y1", 10);
  line.setAttribute("y2", 140);
  svg.append(line);
  const first = say.textContent;
  const move = () => {
    const [delay, wrong, saved] = rows[slider.value];
    line.setAttribute("x1", dots[slider.value].getAttribute("cx"));
    line.setAttribute("x2", dots[slider.value].getAttribute("cx"));
    slider.setAttribute("aria-valuetext", delay);
    say.textContent = slider.value === "0" ? first
      : `If it waited ${delay}, at least ${saved} of them would have been right at once, and every row would be final that much later; at most ${wrong} would have needed a correction.`;
  };
  slider.addEventListener("input", move);
  svg.after(slider);
  move();
});

// Every 15 seconds the same page again, unless nobody looks or somebody is at work in it.
const refresh = async () => {
  const busy = document.hidden || document.activeElement?.matches("main *, input") || document.querySelector("main details[open]");
  if (!busy && document.body.dataset.refresh) {
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        document.querySelector("main").replaceWith(fresh.querySelector("main"));
        addSliders();
      }
    } catch { /* the next attempt tells */ }
  }
};
addEventListener("DOMContentLoaded", () => { addSliders(); setInterval(refresh, 15000); });
