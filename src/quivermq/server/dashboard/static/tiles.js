// A row of figures: a name, a number, a line below it.

import { fill, h, set, setText } from "./dom.js";

/**
 * tiles([{id, label, hint?, href?}]) → {element, update({id: {value, note?, level?, bar?}})}.
 * level: "good", "warn" or "bad". bar: a node between the value and the note.
 */
export function tiles(described) {
  const parts = new Map(described.map(({ id, ...rest }) => [id, tile(rest)]));
  return {
    element: h("div", { class: "card tiles" }, [...parts.values()].map(({ element }) => element)),
    update(figures) {
      for (const [id, { value, note = "", level = "", bar = null }] of Object.entries(figures)) {
        const part = parts.get(id);
        setText(part.value, value);
        set(part.value, { class: ["tile-value", level && `${level}-text`] });
        if (bar) fill(part.bar, bar);
        setText(part.note, note);
        set(part.note, { title: note });
      }
    },
  };
}

function tile({ label, hint, href }) {
  const value = h("span", { class: "tile-value" }, "–");
  const note = h("span", { class: "tile-note" });
  const bar = h("span", { class: "tile-bar" });
  const props = { class: "tile", title: hint };
  const children = [h("span", { class: "tile-label" }, label), value, bar, note];
  return { value, note, bar, element: href ? h("a", { ...props, href }, children) : h("div", props, children) };
}
