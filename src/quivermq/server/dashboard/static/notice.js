// What went wrong, or is worth a look, as a part of a page.

import { h } from "./dom.js";

/** An error as a part of a page. */
export function problem(error, retry) {
  const words = error instanceof Error ? error.message : String(error);
  return h(
    "div", { class: "notice bad", role: "alert" },
    h("p", {}, words),
    retry ? h("button", { type: "button", onclick: retry }, "Try again") : null,
  );
}

/** Something that is worth a look. */
export function notice(...children) {
  return h("div", { class: "notice warn" }, children);
}
