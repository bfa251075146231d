// Plots that move with time, as SVG: axes, units, a legend with the present values, and those under the pointer.

import { fill, h, s, set, setText } from "./dom.js";
import { clock, rate as rateText, short } from "./format.js";

const HEIGHT = 168;
const MARGIN = { top: 10, right: 10, bottom: 22, left: 48 };
const TICKS = 4;
const GAP_MS = 60_000;
const SPANS = [[300_000, "5 min"], [3_600_000, "1 h"]];
const WIDTH_AT_FIRST = 600;

// How far back all plots reach, as it was chosen last: in this tab, until it is closed.
const chosen = new EventTarget();
chosen.span = Number(sessionStorage.getItem("quiver-span")) || SPANS[0][0];

function choose(span) {
  chosen.span = span;
  sessionStorage.setItem("quiver-span", String(span));
  chosen.dispatchEvent(new Event("change"));
}

/**
 * series: [{id, title, color (1…6), dashed?}]; points are {t (unix ms), [id]: number or null}.
 * unit: behind the values, as "/s". format(value): a text.
 */
export function plot({ title, series, unit = "", format = rateText, signal = undefined }) {
  let { span } = chosen;
  const reach = h(
    "select", { "aria-label": `How far back: ${title}`, onchange: () => choose(Number(reach.value)) },
    SPANS.map(([ms, name]) => h("option", { value: String(ms), selected: ms === span }, name)),
  );
  const values = new Map(series.map(({ id }) => [id, h("output", { class: "plot-value" }, "–")]));
  const legend = h(
    "ul", { class: "legend" },
    series.map(({ id, title: name, color }) =>
      h("li", {}, h("span", { class: `swatch c${color}`, "aria-hidden": "true" }), name, " ", values.get(id))),
  );
  const grid = s("g", { class: "grid" });
  const lines = series.map(({ color, dashed }) => s("path", { class: ["line", `c${color}`, dashed && "dashed"] }));
  const areas = series.map(({ color }) => s("path", { class: `area c${color}` }));
  const cross = s("line", { class: "cross", visibility: "hidden" });
  const drawing = s("svg", { class: "plot", role: "img", "aria-label": title }, grid, areas, lines, cross);
  const moment = h("span", { class: "plot-moment" });
  const element = h(
    "figure", { class: "card plot-card" },
    h("figcaption", {}, h("h2", {}, title, unit ? h("span", { class: "unit" }, ` ${unit}`) : null), moment, legend, reach),
    drawing,
  );
  let points = [];
  let pointer = null;
  let width = WIDTH_AT_FIRST;
  let top = 1;
  let end = Date.now();

  // Its own coordinates, so that text and lines keep their size whatever the width.
  new ResizeObserver(([entry]) => {
    width = Math.max(160, Math.round(entry.contentRect.width));
    draw();
  }).observe(drawing);
  drawing.addEventListener("pointermove", (event) => {
    pointer = event.clientX - drawing.getBoundingClientRect().left;
    drawPointer();
  });
  drawing.addEventListener("pointerleave", () => {
    pointer = null;
    drawPointer();
  });

  const x = (t) => MARGIN.left + (1 - (end - t) / span) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => MARGIN.top + (1 - value / top) * (HEIGHT - MARGIN.top - MARGIN.bottom);

  function draw() {
    set(drawing, { viewBox: `0 0 ${width} ${HEIGHT}` });
    const visible = points.filter(({ t }) => t >= end - span);
    top = roof(Math.max(0, ...visible.flatMap((point) => series.map(({ id }) => point[id] ?? 0))));
    drawGrid();
    series.forEach(({ id, dashed }, index) => {
      const runs = runsOf(visible, id);
      set(lines[index], { d: runs.map((run) => pathOf(run, id)).join("") });
      set(areas[index], { d: dashed ? "" : runs.map((run) => `${pathOf(run, id)}V${y(0)}H${x(run[0].t).toFixed(1)}Z`).join("") });
    });
    drawPointer();
  }

  function pathOf(run, id) {
    return run.map((point, index) => `${index ? "L" : "M"}${x(point.t).toFixed(1)} ${y(point[id]).toFixed(1)}`).join("");
  }

  function drawGrid() {
    const marks = [];
    for (let tick = 0; tick <= TICKS; tick += 1) {
      const value = (top / TICKS) * tick;
      const height = y(value);
      marks.push(
        s("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: height, y2: height, class: tick ? "" : "base" }),
        s("text", { x: MARGIN.left - 8, y: height + 4, "text-anchor": "end" }, Number.isInteger(value) ? short(value) : format(value)),
      );
    }
    const minutes = span / 60_000;
    const step = (width < 420 ? 2 : 1) * (minutes > 10 ? 10 : 1);
    for (let back = 0; back <= minutes; back += step) {
      const text = back ? `-${back} min` : "now";
      const anchor = back === 0 ? "end" : back === minutes ? "start" : "middle";
      marks.push(s("text", { x: x(end - back * 60_000), y: HEIGHT - 6, "text-anchor": anchor }, text));
    }
    fill(grid, marks);
  }

  function drawPointer() {
    const point = pointer === null ? points.at(-1) : nearest();
    const isPointed = pointer !== null && point !== undefined;
    set(cross, { visibility: isPointed ? "visible" : "hidden" });
    if (isPointed) set(cross, { x1: x(point.t), x2: x(point.t), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    setText(moment, isPointed ? clock(new Date(point.t)) : "");
    for (const { id } of series) setText(values.get(id), isKnown(point?.[id]) ? format(point[id]) : "–");
    set(drawing, { "aria-label": `${title}: ${series.map(({ id, title: name }) => `${name} ${values.get(id).textContent} ${unit}`).join(", ")}` });
  }

  function nearest() {
    const t = end - (1 - (pointer - MARGIN.left) / (width - MARGIN.left - MARGIN.right)) * span;
    let best;
    for (const point of points) {
      if (point.t >= end - span && (!best || Math.abs(point.t - t) < Math.abs(best.t - t))) best = point;
    }
    return best;
  }

  chosen.addEventListener("change", () => {
    span = chosen.span;
    reach.value = String(span);
    draw();
  }, { signal });
  draw();
  return {
    element,
    update(next, now = Date.now()) {
      points = next;
      end = now;
      draw();
    },
  };
}

/** Messages a second, as the history has them. */
export function ratePlot(signal) {
  return plot({
    title: "Messages", unit: "a second", signal,
    series: [
      { id: "published", title: "published", color: 1 },
      { id: "delivered", title: "delivered", color: 2 },
      { id: "acked", title: "acked", color: 3, dashed: true },
    ],
  });
}

/** A line without axes, for tables: `values` from the oldest to the newest. */
export function sparkline(values, { width = 80, height = 18, slots = 60 } = {}) {
  const most = Math.max(1e-9, ...values);
  const step = width / (slots - 1);
  const start = width - (values.length - 1) * step;
  const d = values
    .map((value, index) => `${index ? "L" : "M"}${(start + index * step).toFixed(1)} ${(height - 1 - (value / most) * (height - 2)).toFixed(1)}`)
    .join("");
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, s("path", { d }));
}

/** A share as a bar: used of whole. */
export function meter(share, label) {
  const percent = Math.min(100, Math.max(0, share * 100));
  const level = percent > 95 ? "bad" : percent > 85 ? "warn" : "";
  return h(
    "div", { class: `meter ${level}`, role: "meter", "aria-valuenow": Math.round(percent), "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": label },
    h("span", { style: { width: `${percent}%` } }),
  );
}

/** Points that follow each other without a value missing, as runs. */
function runsOf(points, id) {
  const runs = [];
  let run = [];
  for (const point of points) {
    // The broker was away when nothing is known for long.
    const isGap = run.length > 0 && point.t - run.at(-1).t > GAP_MS;
    if (isGap || !isKnown(point[id])) {
      if (run.length) runs.push(run);
      run = isKnown(point[id]) ? [point] : [];
    } else {
      run.push(point);
    }
  }
  if (run.length) runs.push(run);
  return runs;
}

function isKnown(value) {
  return value !== null && value !== undefined;
}

/** The next round number, so that the axis has round numbers, and does not move with every message. */
function roof(value) {
  if (value <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((factor) => factor * power).find((round) => round >= value);
}
