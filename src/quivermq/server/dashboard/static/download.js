// Saving something as a file, without asking the broker for it once more.

import { h } from "./dom.js";

const ENDINGS = { json: "json", text: "txt", hex: "bin" };

/** A button that saves what `bytes` returns under the name that `name` returns. */
export function downloadButton(label, bytes, name) {
  return h("button", { type: "button", class: "small", onclick: () => save(bytes(), name()) }, label);
}

/** What a value is called as a file: where it lies in the log, and what it is. */
export function fileNameFor(topic, { partition, priority, offset, id }, form) {
  const place = offset === undefined ? id : `${partition}-${priority}-${offset}`;
  return `${topic}-${place ?? "value"}`.replace(/[^A-Za-z0-9._-]+/g, "_").replace(/^\.+/, "") + `.${ENDINGS[form]}`;
}

function save(bytes, name) {
  // Always as bytes: nothing that came from a message is ever opened as a page.
  const address = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  const anchor = h("a", { download: name, hidden: true });
  // `h` lets links lead to this broker only; this one leads to what is in our hands already.
  anchor.setAttribute("href", address);
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
