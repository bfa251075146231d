// Copying. Browsers have a clipboard for pages only over HTTPS and on this machine; elsewhere there is the old way.

import { h } from "./dom.js";
import { done, failed } from "./toast.js";

/** Copy a text, and say so. */
export async function copy(text, what) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyBySelection(text);
    done(`Copied ${what}.`);
  } catch {
    failed(`The browser does not let this page copy ${what}. Select the text and copy it yourself.`);
  }
}

/** A button that copies what `make` returns. */
export function copyButton(label, what, make) {
  return h("button", { type: "button", class: "small", onclick: () => copy(make(), what) }, label);
}

function copyBySelection(text) {
  const area = h("textarea", { class: "unseen", "aria-hidden": "true", readOnly: true, value: text });
  // In a dialog that is open only what is inside of it can be selected.
  (document.querySelector("dialog[open]") || document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("not copied");
}
