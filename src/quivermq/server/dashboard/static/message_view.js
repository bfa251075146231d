// One message in full: its place, its value in several forms, its headers, and ways to take it elsewhere. What
// is in a message is only ever text here.

import { access } from "./access.js";
import { path } from "./api.js";
import { copyButton } from "./clipboard.js";
import { asCurl, copyOf, cutAt, fieldOf, formsOf, headersAsJson, headersOf, inForm, preview, visible, whole } from "./content.js";
import { downloadButton, fileNameFor } from "./download.js";
import { fill, freshId, h } from "./dom.js";
import * as format from "./format.js";

const HEADERS_SHOWN_MAX = 200;
// More of one header is folded away until somebody asks for it.
const HEADER_CHARACTERS = 300;
const FORM_WORDS = { json: "JSON", text: "Text", hex: "Hex" };

// Which form was chosen last: who looks at hex wants to see the next message in hex as well.
let lastForm = null;

/** A preview of a value or a key for a table: a node. */
export function previewCell(message, name) {
  const { text, isBinary } = preview(fieldOf(message, name));
  return h("span", { class: ["preview mono", isBinary && "quiet-text"], dir: "auto", title: isBinary ? "Bytes that are no text, in hexadecimal" : undefined }, text);
}

/** How many bytes the value of a message has. */
export function sizeOf(message) {
  return fieldOf(message, "value")?.bytes.length ?? 0;
}

/**
 * Everything about a message. `facts` are [name, text or node] that come first; `topic` is where publishing it
 * again would put it, and `address` that of the message in this dashboard.
 */
export function messageView(message, { topic, facts = [], address = null }) {
  const value = fieldOf(message, "value");
  const key = fieldOf(message, "key");
  const headers = headersOf(message);
  return [
    factList([
      ...facts,
      ["Time", message.timestamp === undefined ? null : timeText(message.timestamp)],
      ["Key", key === null ? null : keyNode(key)],
      ["Size", format.bytes(value.bytes.length)],
      ["Expires", message.expires_at ? timeText(message.expires_at) : null],
      ["Deduplication id", message.dedup_id ? visible(message.dedup_id) : null],
      ["Was delayed as", message.scheduled_id ? h("code", {}, message.scheduled_id) : null],
    ]),
    valueView(value, "Value"),
    headersView(headers, message),
    h(
      "div", { class: "row", role: "group", "aria-label": "Copy" },
      copyButton("Copy value", "the value", () => copyOf(value)),
      key ? copyButton("Copy key", "the key", () => copyOf(key)) : null,
      copyButton("Copy as curl", "a command that publishes the same message", () => asCurl(new URL(path("topics", topic, "messages"), location.href).href, message, access.is_required)),
      address ? copyButton("Copy link", "a link to this message", () => new URL(address, location.href).href) : null,
      downloadButton("Download value", () => value.bytes, () => fileNameFor(topic, message, formsOf(value)[0])),
    ),
  ];
}

/** Names and what they stand for; without what is null. */
export function factList(facts) {
  return h("dl", { class: "facts" }, facts.filter(([, told]) => told !== null && told !== undefined).map(([name, told]) => [h("dt", {}, name), h("dd", {}, told)]));
}

/** A moment, and how far away it is. */
export function timeText(us) {
  return [format.time(us), h("span", { class: "quiet-text" }, ` (${format.ago(us)})`)];
}

/** A text of unknown origin as it is written, such as an error with its trace. */
export function rawText(text, label) {
  return h("pre", { class: "raw", tabindex: "0", "aria-label": label }, visible(text));
}

function keyNode(key) {
  const { text, isBinary } = preview(key);
  return h("span", { class: "mono" }, text || h("span", { class: "quiet-text" }, "(empty)"), isBinary ? h("span", { class: "quiet-text" }, " (bytes)") : null);
}

function valueView(value, label) {
  const forms = formsOf(value);
  const chosen = forms.includes(lastForm) ? lastForm : forms[0];
  const shown = h("pre", { class: "raw", tabindex: "0", "aria-label": label });
  const note = h("p", { class: "help", hidden: true }, "Only the beginning is shown. Copying takes all of it.");
  const draw = (form) => {
    const { text, isCut } = inForm(value, form);
    fill(shown, text);
    // A text in Hebrew or Persian begins at the right; JSON and bytes do not.
    shown.dir = form === "text" ? "auto" : "ltr";
    shown.dataset.form = form;
    note.hidden = !isCut;
  };
  const name = freshId("form");
  const choices = forms.map((form) => {
    const input = h("input", {
      type: "radio", name, value: form, checked: form === chosen, class: "unseen",
      onchange: () => {
        lastForm = form;
        draw(form);
      },
    });
    return h("label", { class: "choice" }, input, h("span", {}, FORM_WORDS[form]));
  });
  draw(chosen);
  const isEmpty = value.bytes.length === 0;
  return h(
    "section", { class: "section" },
    h("div", { class: "section-head" }, h("h3", {}, label), isEmpty ? null : h("div", { class: "choices", role: "radiogroup", "aria-label": "Show the value as" }, choices)),
    isEmpty ? h("p", { class: "quiet-text" }, "Empty.") : [shown, note],
  );
}

function headersView(headers, message) {
  if (!headers.length) return null;
  const list = h("dl", { class: "facts headers" }, headers.slice(0, HEADERS_SHOWN_MAX).map(headerRow));
  const left = headers.slice(HEADERS_SHOWN_MAX);
  const more = left.length ? h("p", { class: "help row" }, `Only the first ${HEADERS_SHOWN_MAX} are shown.`, h("button", { type: "button", class: "small", onclick: () => {
    list.append(...left.flatMap(headerRow));
    more.remove();
  } }, `Show all ${format.count(headers.length)}`)) : null;
  return h(
    "section", { class: "section" },
    h("div", { class: "section-head" }, h("h3", {}, `Headers (${headers.length})`), copyButton("Copy headers", "the headers", () => headersAsJson(message))),
    list, more,
  );
}

/** A header: its name, what it holds, folded when that is long, and a way to copy all of it. */
function headerRow(header) {
  const { text, isBinary } = whole(header);
  const isLong = text.length > HEADER_CHARACTERS;
  const name = visible(header.name);
  const content = h("span", { class: "header-text", dir: "auto" }, isLong ? `${cutAt(text, HEADER_CHARACTERS)}…` : text);
  const fold = isLong ? h("button", { type: "button", class: "small", "aria-expanded": "false", "aria-label": `All of ${name}`, onclick: () => {
    const isOpen = fold.getAttribute("aria-expanded") === "true";
    fill(content, isOpen ? `${cutAt(text, HEADER_CHARACTERS)}…` : text);
    fold.setAttribute("aria-expanded", String(!isOpen));
    fill(fold, isOpen ? `Show all ${format.count(text.length)} characters` : "Show less");
  } }, `Show all ${format.count(text.length)} characters`) : null;
  const copy = copyButton("Copy", `header ${name}`, () => copyOf(header));
  copy.setAttribute("aria-label", `Copy header ${name}`);
  copy.classList.add("quiet");
  return [
    h("dt", { class: "mono" }, name),
    h("dd", { class: "mono" }, content, isBinary ? h("span", { class: "quiet-text" }, " (bytes)") : null, h("span", { class: "header-buttons" }, fold, copy)),
  ];
}
