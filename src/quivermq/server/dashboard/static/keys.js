// The keyboard: g and a letter goes to a page, / and Ctrl-K search, ? shows all of it.

import { h } from "./dom.js";
import { openDialog } from "./dialog.js";
import { openSearch } from "./search.js";

const SEQUENCE_MS = 1200;

let pendingSince = 0;

/** Listen for the whole dashboard. */
export function installKeys(pages) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      search(pages);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open], .login")) return;
    onPlainKey(event, pages);
  });
}

function onPlainKey(event, pages) {
  const isSecond = Date.now() - pendingSince < SEQUENCE_MS;
  pendingSince = 0;
  const page = isSecond && pages.find(({ key }) => key === event.key);
  if (page) {
    event.preventDefault();
    location.hash = `#/${page.route}`;
  } else if (event.key === "g") {
    pendingSince = Date.now();
  } else if (event.key === "/") {
    event.preventDefault();
    search(pages);
  } else if (event.key === "?") {
    event.preventDefault();
    showKeys(pages);
  } else if (event.key === "f") {
    const filter = document.querySelector("main input.filter");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  }
}

function search(pages) {
  if (!document.querySelector("dialog[open], .login")) openSearch(pages);
}

function isTyping(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

function showKeys(pages) {
  const rows = [
    [["/"], "Search topics, groups and pages"],
    [["Ctrl", "K"], "The same, also while typing"],
    ...pages.filter(({ key }) => key).map(({ key, nav }) => [["g", key], `Go to ${nav}`]),
    [["f"], "Go to the filter of the page"],
    [["↑", "↓"], "Move between the rows of a table"],
    [["Esc"], "Close"],
    [["?"], "Show this"],
  ];
  const list = rows.map(([keys, words]) => [
    h("dt", {}, keys.map((key, index) => [index ? " " : null, h("kbd", {}, key)])),
    h("dd", {}, words),
  ]);
  openDialog({ title: "Keyboard", body: h("dl", { class: "keys" }, list) });
}
