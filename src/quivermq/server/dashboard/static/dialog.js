// Dialogs: the browser's own, so that focus stays inside, Escape closes, and focus goes back afterwards. What was filled
// in is thrown away only by whoever says so.

import { fill, freshId, h, setText } from "./dom.js";

// Those that are open and hold something that was filled in: {title, isFilled(), close()}.
const keeping = new Set();

/**
 * Open a dialog. `body` is a node or a list; `actions` are buttons at its foot. One that `keeps` what was filled in
 * asks before Escape, a press beside it, its cross or another page throws that away: from the first change on, or
 * with "all" from the beginning. Returns {element, close(value), closed: Promise of value}.
 */
export function openDialog({ title, body, actions = [], wide = false, keeps = false, onclose }) {
  const opener = document.activeElement;
  const titleId = freshId("dialog");
  const heading = h("h2", { id: titleId }, title);
  const dismiss = h("button", { type: "button", class: "quiet dialog-close", "aria-label": "Close" }, "×");
  const element = h(
    "dialog", { "aria-labelledby": titleId, class: wide ? "wide" : "" },
    h("header", { class: "dialog-head" }, heading, dismiss),
    h("div", { class: "dialog-body" }, body),
    actions.length ? h("footer", { class: "dialog-foot" }, actions) : null,
  );
  // At once: the browser tells of a closed dialog later, and whoever waits for the answer must not miss what happens till then.
  const close = (value) => {
    element.close();
    finish(value);
  };
  const isFilled = () => element.open && (keeps === "all" || filledIn(element) !== untouched);
  const leave = async () => {
    if (!keeps || !isFilled() || (await throwsAway(title))) close();
  };
  dismiss.addEventListener("click", leave);
  // A press beside the dialog closes it, unless it began inside: then somebody selects text.
  element.addEventListener("mousedown", (event) => {
    if (event.target === element && isBeside(element, event)) {
      event.preventDefault();
      leave();
    }
  });
  // At the key already: a browser asks the page once, and closes the next time whatever the page says.
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.preventDefault();
    event.stopPropagation();
    leave();
  });
  // The gesture of a phone that goes back.
  element.addEventListener("cancel", (event) => {
    if (event.target !== element) return;
    event.preventDefault();
    leave();
  });
  let settle;
  const closed = new Promise((resolve) => (settle = resolve));
  const finish = (value) => {
    if (!element.isConnected) return;
    keeping.delete(kept);
    element.remove();
    if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    onclose?.(value);
    settle(value);
  };
  // The browser closed it by itself.
  element.addEventListener("close", () => finish());
  document.body.append(element);
  element.showModal();
  const untouched = filledIn(element);
  const kept = { title, isFilled, close };
  if (keeps) keeping.add(kept);
  // The first thing to fill in, rather than the button that closes.
  element.querySelector("[autofocus], .dialog-body input, .dialog-body select, .dialog-body textarea, .dialog-foot .primary")?.focus();
  return { element, close, closed, setBody: (...children) => fill(element.querySelector(".dialog-body"), children) };
}

/** The form that is filled in and was not sent yet: {title, close()}, or undefined. */
export function filledForm() {
  return [...keeping].find(({ isFilled }) => isFilled());
}

/** What all fields of a dialog hold, as one text. */
function filledIn(element) {
  const controls = [...element.querySelectorAll("input, select, textarea")];
  return JSON.stringify(controls.map((each) => (each.type === "checkbox" || each.type === "radio" ? each.checked : each.value)));
}

/** Ask whether what was filled in may go. Resolves to true or false. */
export function throwsAway(title) {
  return confirm({ title: "Throw away what you filled in?", text: `Nothing of “${title}” was sent yet.`, action: "Throw it away", otherwise: "Go on editing", danger: true, isCareful: true });
}

/**
 * Ask before something is done. Resolves to true or false. `otherwise` is what the other button says; `isCareful`
 * lets that one have the focus.
 */
export async function confirm({ title, text, action, otherwise = "Cancel", danger = false, isCareful = false }) {
  const cancel = h("button", { type: "button" }, otherwise);
  const go = h("button", { type: "button", class: danger ? "danger" : "primary" }, action);
  const dialog = openDialog({ title, body: paragraphs(text), actions: [cancel, go] });
  cancel.addEventListener("click", () => dialog.close(false));
  go.addEventListener("click", () => dialog.close(true));
  (isCareful ? cancel : go).focus();
  return (await dialog.closed) === true;
}

/** Ask for a word to be typed before something is done that cannot be undone. Resolves to true or false. */
export async function confirmTyped({ title, text, word, action }) {
  const id = freshId("typed");
  const input = h("input", { id, type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const cancel = h("button", { type: "button" }, "Cancel");
  const go = h("button", { type: "submit", class: "danger", disabled: true }, action);
  const formId = freshId("form");
  go.setAttribute("form", formId);
  const form = h(
    "form", { id: formId },
    paragraphs(text),
    h("label", { for: id }, "Type ", h("code", {}, word), " to confirm"),
    input,
  );
  const dialog = openDialog({ title, body: form, actions: [cancel, go] });
  input.addEventListener("input", () => {
    go.disabled = input.value !== word;
  });
  cancel.addEventListener("click", () => dialog.close(false));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value === word) dialog.close(true);
  });
  return (await dialog.closed) === true;
}

/**
 * A dialog around a form. It closes with what `apply` returns, and says inside of it what went wrong. One that holds what was
 * filled in elsewhere `keeps` "all" of it.
 */
export function formDialog({ title, action, form, fields, apply, wide = false, beside = null, keeps = true }) {
  const words = h("p", { class: "error", role: "alert" });
  const cancel = h("button", { type: "button" }, "Cancel");
  const go = h("button", { type: "submit", class: "primary", form: form.id }, action);
  const dialog = openDialog({ title, body: [form, words], actions: [beside, cancel, go].filter(Boolean), wide, keeps });
  cancel.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    setText(words, "");
    try {
      dialog.close((await apply()) ?? true);
    } catch (error) {
      setText(words, error.message);
      // An error of the broker names the setting that it means.
      if (error.fields?.key) fields?.refuse(error.fields.key, error.fields.reason || error.message);
    } finally {
      go.disabled = false;
    }
  });
  return dialog;
}

function paragraphs(text) {
  return (Array.isArray(text) ? text : [text]).map((part) => (part instanceof Node ? part : h("p", {}, part)));
}

function isBeside(element, event) {
  const box = element.getBoundingClientRect();
  return event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom;
}
