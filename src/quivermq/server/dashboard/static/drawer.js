// A panel at the side that shows one thing of a list. The list stays in reach beside it; on a phone it covers it.

import { fill, freshId, h } from "./dom.js";

/**
 * A panel that is there as long as `signal` says. open({title, body, opener}) shows something; Escape and its
 * button close it, and the focus goes back to `opener()`.
 */
export function drawer(signal, { onclose } = {}) {
  const titleId = freshId("drawer");
  const title = h("h2", { id: titleId, tabindex: "-1" });
  const body = h("div", { class: "drawer-body" });
  const steps = h("div", { class: "row" });
  const dismiss = h("button", { type: "button", class: "quiet dialog-close", "aria-label": "Close", onclick: () => close() }, "×");
  const element = h(
    "aside", { class: "drawer", "aria-labelledby": titleId, hidden: true },
    h("header", { class: "dialog-head" }, title, steps, dismiss), body,
  );
  let goBack = null;

  function close({ keepsFocus = false } = {}) {
    if (element.hidden) return;
    element.hidden = true;
    document.body.classList.remove("has-drawer");
    fill(body);
    if (!keepsFocus) goBack?.()?.focus();
    onclose?.();
  }

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || element.hidden || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    close();
  }, { signal });
  signal.addEventListener("abort", () => {
    document.body.classList.remove("has-drawer");
    element.remove();
  });
  document.body.append(element);

  return {
    element,
    close,
    get isOpen() {
      return !element.hidden;
    },
    /** Show something else. `steps` are buttons beside the title; the focus moves only when it was closed before. */
    open({ title: words, content, opener, buttons = [] }) {
      const wasOpen = !element.hidden;
      goBack = opener;
      fill(title, words);
      fill(steps, buttons);
      fill(body, content);
      body.scrollTop = 0;
      element.hidden = false;
      document.body.classList.add("has-drawer");
      if (!wasOpen || !element.contains(document.activeElement)) title.focus({ preventScroll: true });
    },
  };
}

/** Let a table show which of its rows is the one in the panel; null for none. */
export function markOpened(list, key) {
  for (const row of list.element.querySelectorAll("tbody tr")) {
    row.classList.toggle("chosen", row.dataset.key === key);
  }
}

/** The button that opens a row of a table, for the focus to go back to. */
export function openerOf(list, key) {
  return [...list.element.querySelectorAll("tbody tr")].find((row) => row.dataset.key === key)?.querySelector("button.linklike");
}

/** Buttons that go to the one before and the one behind of some rows: "message" is what they are. */
export function stepButtons(what, rows, index, open) {
  const step = (word, symbol, other) =>
    h("button", { type: "button", class: "small", "aria-label": `${word} ${what}`, disabled: !other, onclick: () => open(other) }, symbol);
  return [step("Previous", "↑", rows[index - 1]), step("Next", "↓", rows[index + 1])];
}
