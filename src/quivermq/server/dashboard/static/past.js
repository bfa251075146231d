// The last hour, as the broker keeps it: a point every few seconds, there at once when a page is opened.

import { path } from "./api.js";

const REFRESH_MS = 5000;
const KEPT_MS = 3_600_000;

/**
 * past(ctx, {topic?, group?}, ondraw) → {points}: brought up to date while the page is open. Points are
 * {t (unix ms), [name]: number or null}, oldest first.
 */
export function past(ctx, asked, ondraw) {
  const found = { points: [] };
  let since = 0;
  const look = async () => {
    try {
      const told = await ctx.api.get(path("history"), { query: { ...asked, since } });
      if (!told.times.length) return;
      since = told.times.at(-1);
      found.points.push(...pointsOf(told));
      const start = since / 1000 - KEPT_MS;
      while (found.points.length && found.points[0].t < start) found.points.shift();
      ondraw();
    } catch {
      // The plots go on with what comes live; whoever shows the page says what is wrong.
    }
  };
  look();
  ctx.every(REFRESH_MS, look);
  return found;
}

/** What was before the live points, and these. */
export function joined(before, live) {
  const start = live.length ? live[0].t : Infinity;
  return [...before.filter(({ t }) => t < start), ...live];
}

function pointsOf({ times, series }) {
  return times.map((time, index) => {
    const point = { t: time / 1000 };
    for (const [name, values] of Object.entries(series)) point[name] = values[index];
    return point;
  });
}
