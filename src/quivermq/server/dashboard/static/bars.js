// Counts over spans of time, as bars. One stop for the keyboard: arrows move along, Enter chooses.

import { fill, h, s, set, setText } from "./dom.js";
import * as format from "./format.js";

const HEIGHT = 150;
const MARGIN = { top: 10, right: 10, bottom: 22, left: 48 };
const TICKS = 3;
const WIDTH_AT_FIRST = 600;
const LABEL_WIDTH = 92;
const DAY_MS = 86_400_000;

/**
 * bars({title, onchoose({start, end, count})}) → {element, update({start, end (unix µs), counts})}.
 */
export function bars({ title, onchoose }) {
  // For the keyboard it is a slider over the spans, which tells what is in each.
  const grid = s("g", { class: "grid" });
  const columns = s("g", { class: "columns-of-bars" });
  const drawing = s("svg", { class: "plot bars", role: onchoose ? "slider" : "img", tabindex: onchoose ? "0" : null, "aria-label": title }, grid, columns);
  const readout = h("output", { class: "quiet-text" });
  const element = h("figure", { class: "card plot-card" }, h("figcaption", {}, h("h2", {}, title), readout), drawing);
  let width = WIDTH_AT_FIRST;
  let data = { start: 0, end: 1, counts: [] };
  let pointed = null;
  let words = "";

  new ResizeObserver(([entry]) => {
    width = Math.max(160, Math.round(entry.contentRect.width));
    draw();
  }).observe(drawing);
  drawing.addEventListener("pointermove", (event) => point(at(event.clientX)));
  drawing.addEventListener("pointerleave", () => point(null));
  drawing.addEventListener("blur", () => point(null));
  if (onchoose) {
    drawing.addEventListener("click", (event) => choose(at(event.clientX)));
    drawing.addEventListener("keydown", onKey);
  }

  const inner = () => width - MARGIN.left - MARGIN.right;
  const step = () => inner() / Math.max(1, data.counts.length);
  const spanOf = (index) => (data.end - data.start) / data.counts.length * index + data.start;

  function at(clientX) {
    const x = clientX - drawing.getBoundingClientRect().left - MARGIN.left;
    const index = Math.floor(x / step());
    return index >= 0 && index < data.counts.length ? index : null;
  }

  function onKey(event) {
    const last = data.counts.length - 1;
    const moves = { ArrowRight: (pointed ?? -1) + 1, ArrowLeft: (pointed ?? last + 1) - 1, Home: 0, End: last };
    if (event.key in moves) point(Math.min(last, Math.max(0, moves[event.key])));
    else if (event.key === "Enter" && pointed !== null) choose(pointed);
    else return;
    event.preventDefault();
  }

  function choose(index) {
    if (index !== null) onchoose({ start: spanOf(index), end: spanOf(index + 1), count: data.counts[index] });
  }

  function point(index) {
    pointed = index;
    [...columns.children].forEach((bar, place) => bar.classList.toggle("pointed", place === index));
    const told = index === null ? words : `${labelOf(spanOf(index), true)} to ${labelOf(spanOf(index + 1), true)}: ${format.many(data.counts[index], "message")}`;
    setText(readout, told);
    if (onchoose) set(drawing, { "aria-valuemin": 0, "aria-valuemax": Math.max(0, data.counts.length - 1), "aria-valuenow": index ?? 0, "aria-valuetext": told });
  }

  function labelOf(us, isExact) {
    const date = new Date(us / 1000);
    const isLong = (data.end - data.start) / 1000 > 2 * DAY_MS;
    const [day, clock] = format.time(us).split(" ");
    if (!isLong) return isExact ? clock.slice(0, 8) : clock.slice(0, 5);
    return isExact ? `${day} ${format.clock(date).slice(0, 5)}` : day;
  }

  function draw() {
    set(drawing, { viewBox: `0 0 ${width} ${HEIGHT}` });
    const top = roof(Math.max(1, ...data.counts));
    const y = (value) => MARGIN.top + (1 - value / top) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const marks = [];
    for (let tick = 0; tick <= TICKS; tick += 1) {
      const height = y((top / TICKS) * tick);
      marks.push(
        s("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: height, y2: height, class: tick ? "" : "base" }),
        s("text", { x: MARGIN.left - 8, y: height + 4, "text-anchor": "end" }, format.short((top / TICKS) * tick)),
      );
    }
    const labels = Math.max(1, Math.min(6, Math.floor(inner() / LABEL_WIDTH)));
    for (let label = 0; label <= labels; label += 1) {
      const us = data.start + ((data.end - data.start) / labels) * label;
      const anchor = label === 0 ? "start" : label === labels ? "end" : "middle";
      marks.push(s("text", { x: MARGIN.left + (inner() / labels) * label, y: HEIGHT - 6, "text-anchor": anchor }, label === 0 ? "now" : labelOf(us, false)));
    }
    fill(grid, marks);
    fill(columns, data.counts.map((count, index) => {
      const height = count ? Math.max(1.5, y(0) - y(count)) : 0;
      return s("rect", { x: (MARGIN.left + index * step()).toFixed(1), width: Math.max(1, step() - 1).toFixed(1), y: (y(0) - height).toFixed(1), height: height.toFixed(1) });
    }));
    point(pointed !== null && pointed < data.counts.length ? pointed : null);
  }

  draw();
  return {
    element,
    /** `told` is what to say while nobody points at a bar. */
    update(next, told = "") {
      data = next;
      words = told;
      if (!onchoose) set(drawing, { "aria-label": `${title}: ${told}` });
      draw();
    },
  };
}

/** The next number that three ticks divide into round numbers. */
function roof(value) {
  if (value <= 3) return 3;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1.5, 3, 6, 9, 15].map((factor) => factor * power).find((round) => round >= value && Number.isInteger(round / TICKS)) ?? Math.ceil(value / TICKS) * TICKS;
}
