// Choosing one of very many names: a field that shows those that fit while one types, and only so many of them.

import { freshId, fill, h, set } from "./dom.js";

const SHOWN_MAX = 50;

/**
 * A field with its label: {element, input}. `names()` gives the names there are at that moment; `onpick(name)` is called
 * for one that was chosen.
 */
export function picker({ label, value, names, onpick }) {
  const [inputId, listId] = [freshId("picker"), freshId("names")];
  const input = h("input", {
    id: inputId, type: "text", role: "combobox", value, autocomplete: "off", spellcheck: "false", "aria-expanded": "false", "aria-controls": listId, "aria-autocomplete": "list",
  });
  const list = h("ul", { id: listId, role: "listbox", class: "names", "aria-label": label, hidden: true });
  const element = h("div", { class: "field picker" }, h("label", { for: inputId }, label), input, list);
  let found = [];
  let at = 0;

  function open(needle) {
    const all = names().sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const words = needle.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = all.filter((name) => words.every((word) => name.toLowerCase().includes(word)));
    found = fitting.slice(0, SHOWN_MAX);
    at = Math.max(0, found.indexOf(value));
    const more = fitting.length - found.length;
    const rest = !fitting.length ? "Nothing is called that." : more ? `${more} more: type to find them.` : "";
    fill(list, found.map((name, index) => h("li", { role: "option", id: `${listId}-${index}`, onmousedown: (event) => event.preventDefault(), onclick: () => pick(name) }, name)),
      rest ? h("li", { class: "help", role: "presentation" }, rest) : null);
    list.hidden = false;
    set(input, { "aria-expanded": "true" });
    mark();
  }

  function close() {
    list.hidden = true;
    set(input, { "aria-expanded": "false", "aria-activedescendant": null });
  }

  function mark() {
    [...list.querySelectorAll("[role=option]")].forEach((item, index) => {
      set(item, { "aria-selected": index === at ? "true" : "false" });
      if (index === at) item.scrollIntoView({ block: "nearest" });
    });
    set(input, { "aria-activedescendant": found.length ? `${listId}-${at}` : null });
  }

  function pick(name) {
    input.value = name;
    close();
    if (name === value) return;
    value = name;
    onpick(name);
  }

  function move(by) {
    if (list.hidden) open("");
    else if (found.length) at = (at + by + found.length) % found.length;
    mark();
  }

  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", () => list.hidden && open(""));
  input.addEventListener("input", () => open(input.value));
  // What is no name, or was not chosen, is not kept: the field always says what is chosen.
  input.addEventListener("blur", () => {
    close();
    input.value = value;
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter" && !list.hidden) found[at] && pick(found[at]);
    else if (event.key === "Escape" && !list.hidden) {
      input.value = value;
      close();
    } else return;
    // Not for the form, the dialog or the panel around it.
    event.preventDefault();
    event.stopPropagation();
  });
  return { element, input };
}
