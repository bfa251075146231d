// Short messages about what was done or went wrong. Screen readers hear them; nothing else moves.

import { h } from "./dom.js";

const STAYS_MS = 5000;
const SHOWN_MAX = 4;

/** Say that something was done. */
export function done(text) {
  show(text, "good", "polite", STAYS_MS);
}

/** Say what went wrong: an Error or a text. It stays until it is closed. */
export function failed(error) {
  show(error instanceof Error ? error.message : error, "bad", "assertive", 0);
}

/** Say something else that is worth a look. */
export function note(text) {
  show(text, "warn", "polite", STAYS_MS);
}

const regions = new Map();

function region(politeness) {
  if (!regions.has(politeness)) {
    const place = h("div", { "aria-live": politeness, role: politeness === "assertive" ? "alert" : "status" });
    document.getElementById("toasts").append(place);
    regions.set(politeness, place);
  }
  return regions.get(politeness);
}

function show(text, kind, politeness, staysMs) {
  const place = region(politeness);
  const same = [...place.children].find((other) => other.dataset.text === text);
  if (same) same.remove();
  const close = h("button", { class: "toast-close", type: "button", "aria-label": "Dismiss", onclick: () => toast.remove() }, "×");
  const toast = h("div", { class: `toast ${kind}`, dataset: { text } }, h("span", {}, text), close);
  place.append(toast);
  while (place.children.length > SHOWN_MAX) place.firstChild.remove();
  if (staysMs) setTimeout(() => toast.remove(), staysMs);
}
