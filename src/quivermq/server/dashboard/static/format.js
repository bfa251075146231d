// Numbers, sizes and times as people read them. Everything returns a text.

const NONE = "–";
const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const none = NONE;

/** 1234567 → 1,234,567 */
export function count(number) {
  return isNumber(number) ? COUNT.format(number) : NONE;
}

/** 1234567 → 1.23 M: for places that are narrow. */
export function short(number) {
  if (!isNumber(number)) return NONE;
  const size = Math.abs(number);
  if (size < 10 && !Number.isInteger(number)) return number.toFixed(1);
  if (size < 10_000) return COUNT.format(number);
  for (const [unit, factor] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (size >= factor) return `${significant(number / factor)} ${unit}`;
  }
  return COUNT.format(number);
}

/** Messages a second, without the unit. */
export function rate(perSecond) {
  if (!isNumber(perSecond)) return NONE;
  if (perSecond === 0) return "0";
  if (perSecond < 0.05) return "<0.1";
  if (perSecond < 10) return perSecond.toFixed(1);
  return short(Math.round(perSecond));
}

/** 1536 → 1.5 KiB */
export function bytes(number) {
  if (!isNumber(number)) return NONE;
  let size = number;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${COUNT.format(size)} B` : `${significant(size)} ${UNITS[unit]}`;
}

/** 93000 → 1 min 33 s: at most two units, the larger first. */
export function duration(ms) {
  if (!isNumber(ms)) return NONE;
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1) return "0 s";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1).replace(/\.0$/, "")} s`;
  const seconds = Math.round(ms / 1000);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size);
  const [size, unit] = parts[first];
  const told = `${COUNT.format(Math.floor(seconds / size))} ${unit}`;
  const rest = seconds % size;
  if (!rest || first === parts.length - 1) return told;
  const [nextSize, nextUnit] = parts[first + 1];
  const next = Math.floor(rest / nextSize);
  return next ? `${told} ${next} ${nextUnit}` : told;
}

/** Unix microseconds as the date and time here: 2026-03-01 14:05:09.123 */
export function time(us) {
  if (!isNumber(us)) return NONE;
  const date = new Date(us / 1000);
  if (Number.isNaN(date.getTime())) return `${us} µs`;
  return `${day(date)} ${clock(date)}.${pad(Math.floor(us / 1000) % 1000, 3)}`;
}

/** The time of the day, without its date: 14:05:09 */
export function clock(date) {
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** Unix microseconds as seen from now: "3 min ago", "in 2 h". */
export function ago(us, nowUs = Date.now() * 1000) {
  if (!isNumber(us)) return NONE;
  const ms = (nowUs - us) / 1000;
  if (Math.abs(ms) < 1000) return "now";
  const told = duration(Math.abs(ms)).split(" ").slice(0, 2).join(" ");
  return ms > 0 ? `${told} ago` : `in ${told}`;
}

/** 0.123 → 12 % */
export function percent(share) {
  if (!isNumber(share)) return NONE;
  const hundred = share * 100;
  return `${hundred > 0 && hundred < 1 ? "<1" : Math.round(hundred)} %`;
}

/** "1 message", "2 messages" */
export function many(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}

function isNumber(number) {
  return typeof number === "number" && Number.isFinite(number);
}

function significant(number) {
  const size = Math.abs(number);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  const text = number.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function day(date) {
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

function pad(number, width = 2) {
  return String(number).padStart(width, "0");
}
