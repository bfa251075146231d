// Fields for what is in a message: value, key and headers. For publishing one, and for mending a dead letter.

import { fieldOf, fromBase64, headersOf, prettyJson, toBase64, whyNotJson } from "./content.js";
import { freshId, h, set, setText } from "./dom.js";
import * as format from "./format.js";

// Further ones are kept as they are: nobody edits so many by hand, and the page would take seconds for them.
const HEADERS_MAX = 200;

// In a field of a page more than this takes seconds.
const EDITED_BYTES_MAX = 1024 * 1024;

const encoder = new TextEncoder();

/** A label, what it is for, and a line of help. */
export function field(label, control, help) {
  control.id ||= freshId("field");
  const helpId = help ? freshId("help") : null;
  if (helpId) control.setAttribute("aria-describedby", helpId);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, help ? h("p", { id: helpId, class: "help" }, help) : null);
}

/** A list to choose from: [[value, words]]. */
export function select(options, chosen, props = {}) {
  return h("select", props, options.map(([value, words]) => h("option", { value, selected: String(value) === String(chosen) }, words)));
}

/**
 * The fields, filled in from a message. `read()` gives {value or value_base64, key?, headers?}, or throws an Error
 * that says what is wrong.
 */
export function contentFields(message = { value: "" }) {
  const value = valueField(message);
  const key = keyField(message);
  const headers = headerRows(message);
  return {
    elements: [value.element, key.element, headers.element],
    read: () => ({ ...value.read(), ...key.read(), ...headers.read() }),
  };
}

function valueField(message) {
  const given = fieldOf(message, "value");
  return given.bytes.length > EDITED_BYTES_MAX ? keptValue(message, given.bytes.length) : editedValue(given);
}

function keptValue({ value, value_base64: base64 }, size) {
  const words = `Its value has ${format.bytes(size)}, more than can be edited here, and is kept as it is.`;
  const element = h("div", { class: "field" }, h("p", { class: "help" }, words));
  return { element, read: () => (value === undefined ? { value_base64: base64 } : { value }) };
}

function editedValue(given) {
  const isJson = given.text !== null && /^\s*[[{]/.test(given.text) && !whyNotJson(given.text);
  const kind = select([["text", "Text"], ["json", "JSON"], ["base64", "Base64"]], given.text === null ? "base64" : isJson ? "json" : "text", { "aria-label": "The value is given as" });
  const area = h("textarea", { rows: "8", spellcheck: "false", dir: "auto", value: given.text ?? toBase64(given.bytes) });
  const verdict = h("p", { class: "help verdict", role: "status" });
  const indent = h("button", { type: "button", class: "small", onclick: () => {
    area.value = prettyJson(area.value) ?? area.value;
    judge();
  } }, "Indent");
  area.id = freshId("value");
  const element = h("div", { class: "field" }, h("div", { class: "section-head" }, h("label", { for: area.id }, "Value"), indent, kind), area, verdict);

  function judge() {
    const found = judged(kind.value, area.value);
    set(verdict, { class: ["help verdict", found.isGood ? "good-text" : "bad-text"] });
    if (kind.value === "text") set(verdict, { class: "help verdict" });
    set(area, { "aria-invalid": found.isGood ? null : "true" });
    setText(verdict, found.words);
    set(indent, { hidden: kind.value !== "json" || !found.isGood });
    return found;
  }

  area.addEventListener("input", judge);
  kind.addEventListener("change", judge);
  judge();
  return {
    element,
    read() {
      const found = judge();
      if (!found.isGood) {
        area.focus();
        throw new Error(`The value: ${found.words}`);
      }
      return kind.value === "base64" ? { value_base64: area.value.replace(/\s+/g, "") } : { value: area.value };
    },
  };
}

function judged(kind, text) {
  if (kind === "base64") {
    const bytes = fromBase64(text.replace(/\s+/g, ""));
    return bytes ? { isGood: true, words: `Valid base64, ${format.bytes(bytes.length)}.` } : { isGood: false, words: "This is not base64." };
  }
  const size = format.bytes(encoder.encode(text).length);
  if (kind === "text") return { isGood: true, words: `${size}.` };
  const reason = whyNotJson(text);
  return reason ? { isGood: false, words: `Not JSON: ${reason}` } : { isGood: true, words: `Valid JSON, ${size}.` };
}

function keyField(message) {
  const given = fieldOf(message, "key");
  if (given !== null && given.text === null) {
    // Bytes that nobody can type stay as they are, unless somebody takes them away.
    const keep = h("input", { type: "checkbox", checked: true });
    const element = h("div", { class: "field" }, h("label", { class: "row" }, keep, " Keep its key, which is no text"));
    return { element, read: () => (keep.checked ? { key_base64: message.key_base64 } : {}) };
  }
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", value: given?.text ?? "" });
  return {
    element: field("Key", input, "Messages of one key go to one partition, in order. Optional."),
    read: () => (input.value === "" && given?.text !== "" ? {} : { key: input.value }),
  };
}

function headerRows(message) {
  const list = h("div", { class: "header-rows" });
  const add = h("button", { type: "button", class: "small", onclick: () => addRow("", "").focus() }, "Add header");
  const element = h("fieldset", { class: "field" }, h("legend", {}, "Headers"), list, h("div", {}, add));
  const bytes = new Map();

  function addRow(name, text, content = null) {
    const nameInput = h("input", { type: "text", value: name, placeholder: "Name", "aria-label": "Name of the header", autocomplete: "off", spellcheck: "false" });
    const valueInput = h("input", {
      type: "text", value: content ? "(bytes, kept as they are)" : text, placeholder: "Value", "aria-label": "Value of the header", autocomplete: "off", spellcheck: "false", readOnly: content !== null,
    });
    const remove = h("button", { type: "button", class: "quiet", "aria-label": "Remove this header", onclick: () => {
      const next = row.nextElementSibling?.querySelector("input") || add;
      row.remove();
      next.focus();
    } }, "×");
    const row = h("div", { class: "header-row" }, nameInput, valueInput, remove);
    if (content) bytes.set(row, content);
    list.append(row);
    return nameInput;
  }

  const given = Object.entries(message.headers || {});
  const kept = given.slice(HEADERS_MAX);
  if (kept.length) list.before(h("p", { class: "help" }, `${format.many(kept.length, "header")} more than can be shown, kept as they are.`));
  for (const header of headersOf({ headers: Object.fromEntries(given.slice(0, HEADERS_MAX)) })) addRow(header.name, header.text ?? "", header.text === null ? header.bytes : null);
  return {
    element,
    read() {
      const headers = Object.assign(Object.create(null), Object.fromEntries(kept));
      for (const row of list.children) {
        const [name, value] = row.querySelectorAll("input");
        if (!name.value && !value.value) continue;
        const complaint = !name.value ? "A header needs a name." : Object.hasOwn(headers, name.value) ? `There are two headers ${name.value}.` : "";
        if (complaint) {
          name.focus();
          throw new Error(complaint);
        }
        headers[name.value] = bytes.has(row) ? { base64: toBase64(bytes.get(row)) } : value.value;
      }
      return Object.keys(headers).length ? { headers } : {};
    },
  };
}
