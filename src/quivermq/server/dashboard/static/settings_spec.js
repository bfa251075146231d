// What the settings of a topic may be: told by the broker's own description, so that nothing is written twice.

import { ROOT } from "./api.js";
import { bytes, count, duration } from "./format.js";

let kept = null;

/** By name: {name, doc, kind, choices, optional}. kind: "flag", "choice", "text", "weights", "size", "time", "number", "decimal". */
export async function settingsSpec(api) {
  if (!kept) {
    const document = await api.get(`${ROOT}openapi.json`);
    const schema = document.paths["/v1/topics/{topic}"].patch.requestBody.content["application/json"].schema;
    kept = new Map(Object.entries(schema.properties).map(([name, described]) => [name, specOf(name, described)]));
  }
  return kept;
}

function specOf(name, { description, anyOf }) {
  const choices = anyOf.find(({ enum: words }) => words)?.enum || [];
  const isFlag = anyOf.some(({ type }) => type === "boolean");
  const isWeights = anyOf.some(({ type }) => type === "array");
  const number = anyOf.find(({ type }) => type === "integer" || type === "number") || {};
  const isText = !choices.length && number.type === undefined;
  const kind = isFlag ? "flag" : isWeights ? "weights" : choices.length ? "choice" : isText ? "text" : number.type === "number" ? "decimal" : numberKind(name);
  const optional = anyOf.some(({ type }) => type === "null");
  return { name, doc: description, kind, choices, optional, lowest: number.minimum, highest: number.maximum };
}

function numberKind(name) {
  const parts = name.split("_");
  if (parts.includes("bytes")) return "size";
  return parts.includes("ms") ? "time" : "number";
}

/** A value as it is written in a field. */
export function written(value) {
  if (value === null || value === undefined) return "";
  return Array.isArray(value) ? value.join(":") : String(value);
}

/** A value as people say it: "30 s", "64 MiB", "none". */
export function said(spec, value) {
  if (value === null || value === undefined) return "none";
  if (Array.isArray(value)) return value.join(" : ");
  if (typeof value !== "number") return String(value);
  if (spec.kind === "time") return value === 0 ? "0" : duration(value);
  if (spec.kind === "decimal") return String(value);
  return spec.kind === "size" ? bytes(value) : count(value);
}

const SIZES = { "": 1, b: 1, kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3 };
const TIMES = { "": 1, ms: 1, s: 1000, min: 60_000, h: 3_600_000, d: 86_400_000 };

/** The value that a text stands for. Throws an Error that says what is expected. */
export function understood(spec, text) {
  const given = text.trim();
  if (spec.kind === "flag") return given === "true";
  if (spec.kind === "choice" || spec.kind === "text") return given;
  if (given === "" || given === "none") {
    if (spec.optional) return null;
    throw new Error(`${spec.name} needs a value.`);
  }
  if (spec.kind === "weights") return given === "strict" ? given : weights(spec, given);
  const units = { size: SIZES, time: TIMES }[spec.kind] || { "": 1 };
  const match = /^([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)$/i.exec(given);
  const factor = match && units[match[2].toLowerCase()];
  const number = factor === undefined || factor === null ? NaN : Number(match[1]) * factor;
  if (spec.kind === "decimal" ? !Number.isFinite(number) : !Number.isSafeInteger(number)) throw new Error(`${spec.name}: ${expected(spec)}.`);
  if (number < spec.lowest || number > spec.highest) {
    throw new Error(`${spec.name} is at least ${spec.lowest}${spec.highest < Number.MAX_SAFE_INTEGER ? ` and at most ${spec.highest}` : ""}.`);
  }
  return number;
}

function weights(spec, text) {
  const parts = text.split(/\s*:\s*/).map(Number);
  if (parts.length !== 3 || !parts.every(Number.isInteger)) throw new Error(`${spec.name}: ${expected(spec)}.`);
  return parts;
}

/** What may be written, in words. */
export function expected(spec) {
  const words = {
    size: "bytes, or a size such as 64 MiB",
    time: "milliseconds, or a time such as 30 s, 5 min, 2 h, 7 d",
    number: "a whole number",
    decimal: "a number such as 2 or 1.5",
    weights: "strict, or weights such as 8:4:1",
  }[spec.kind];
  return words ? `${words}${spec.optional ? "; empty for none" : ""}` : "";
}

/** Whether two values are the same. */
export function same(one, other) {
  return JSON.stringify(one ?? null) === JSON.stringify(other ?? null);
}
