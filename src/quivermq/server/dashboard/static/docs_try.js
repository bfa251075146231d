// A form that makes one call, and shows what the broker answers: its status, how long it took, and what it says.

import { authorization, ROOT } from "./api.js";
import { copyButton } from "./clipboard.js";
import { hexDump, prettyJson, visible, whyNotJson } from "./content.js";
import { fill, freshId, h, marked, set, setText } from "./dom.js";
import * as format from "./format.js";
import { field, select } from "./message_form.js";

const SHOWN_BYTES = 256 * 1024;
const JSON_TYPE = "application/json";

/** The form for a call, with fields for its path, its query and its body. */
export function tryForm(schemas, address, method, about) {
  const parameters = (about.parameters || []).map((parameter) => ({ ...parameter, input: inputFor(schemas, parameter) }));
  const body = about.requestBody ? bodyField(schemas, about.requestBody.content) : null;
  const send = h("button", { type: "submit", class: method === "delete" ? "danger" : "primary" }, "Send");
  const stop = h("button", { type: "button", hidden: true }, "Stop");
  const answer = h("div", { class: "section", role: "region", "aria-label": "Answer", "aria-live": "polite" });
  const words = h("p", { class: "error", role: "alert" });
  const request = () => requestOf(address, method, parameters, body);
  const curl = copyButton("Copy as curl", "a command that makes this call", () => asCurl(request()));
  const optional = parameters.filter(({ required }) => !required);
  const form = h(
    "form", { class: "docs-try", novalidate: true, "aria-label": `Try ${method.toUpperCase()} ${address}` },
    fieldsOf(schemas, parameters.filter(({ required }) => required)),
    optional.length ? h("details", {}, h("summary", {}, `Optional: ${optional.map(({ name }) => name).join(", ")}`), fieldsOf(schemas, optional)) : null,
    body?.element ?? null,
    h("div", { class: "row" }, send, stop, curl),
    words, answer,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    setText(words, "");
    const abort = new AbortController();
    stop.onclick = () => abort.abort();
    set(send, { disabled: true });
    set(stop, { hidden: false });
    try {
      await sent(request(), abort.signal, answer);
    } catch (error) {
      setText(words, error instanceof TypeError ? "The broker cannot be reached: is it running?" : error.message);
    } finally {
      set(send, { disabled: false });
      set(stop, { hidden: true });
    }
  });
  return form;
}

function inputFor(schemas, { schema }) {
  const found = schemas.resolved(schema) || {};
  if (found.enum) return select([["", ""], ...found.enum.map((word) => [word, String(word)])], "");
  const placeholder = found.default === undefined ? "" : String(found.default);
  return h("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off", placeholder, inputmode: found.type === "integer" ? "numeric" : null });
}

function fieldsOf(schemas, parameters) {
  return parameters.length ? h("div", { class: "fields" }, parameters.map(({ name, description, schema, input }) =>
    field(name, input, h("span", {}, marked(description || ""), h("span", { class: "docs-kind" }, ` ${schemas.told(schema)}`))))) : null;
}

/** A field for what is sent; what is no text cannot be typed, and such a body is left to programs. */
function bodyField(schemas, content) {
  const types = Object.keys(content);
  const typed = types.filter((type) => type !== "application/vnd.quiver.frame");
  if (!typed.length) return { element: h("p", { class: "help" }, "Its body is a frame of bytes, which a program makes; here it is sent empty."), type: types[0], read: () => "" };
  const kind = select(typed.map((type) => [type, type]), typed[0], { "aria-label": "The body is" });
  const area = h("textarea", { rows: "6", spellcheck: "false", id: freshId("body") });
  area.value = content[JSON_TYPE] ? prettyJson(JSON.stringify(schemas.example(content[JSON_TYPE].schema))) : "";
  return {
    element: h("div", { class: "field" }, h("div", { class: "section-head" }, h("label", { for: area.id }, "Body"), typed.length > 1 ? kind : h("code", { class: "quiet-text" }, typed[0])), area),
    get type() {
      return kind.value;
    },
    read() {
      const reason = kind.value === JSON_TYPE && area.value !== "" ? whyNotJson(area.value) : "";
      if (reason) {
        area.focus();
        throw new Error(`The body is not JSON: ${reason}`);
      }
      return area.value;
    },
  };
}

/** What would be sent: {url, method, type, body}. Throws an Error that says what is missing. */
function requestOf(address, method, parameters, body) {
  let place = address;
  const query = new URLSearchParams();
  for (const { name, in: where, input } of parameters) {
    if (where === "path") {
      if (input.value === "") {
        input.focus();
        throw new Error(`Give ${name}: it is a part of the address.`);
      }
      place = place.replace(`{${name}}`, encodeURIComponent(input.value));
    } else if (where === "query" && input.value !== "") query.set(name, input.value);
  }
  const url = new URL(ROOT + place.slice(1) + (query.size ? `?${query}` : ""), location.href).href;
  return { url, method: method.toUpperCase(), type: body?.type, body: body?.read() };
}

async function sent({ url, method, type, body }, signal, place) {
  const start = performance.now();
  fill(place, h("p", { class: "quiet-text" }, "Waiting for the answer…"));
  const headers = { ...authorization(), ...(body === undefined ? {} : { "Content-Type": type }) };
  let response;
  try {
    response = await fetch(url, { method, headers, body, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    fill(place);
    if (signal.aborted) throw new Error("Stopped before there was an answer.");
    throw error;
  }
  const head = h("p", { class: "docs-status" });
  const shown = h("pre", { class: "raw", tabindex: "0", "aria-label": "Body of the answer", hidden: true });
  fill(place, head, shown);
  const draw = (bytes, isOver) => {
    fill(head, h("span", { class: ["tag", response.ok ? "good" : "bad"] }, `${response.status} ${response.statusText}`), ` ${Math.round(performance.now() - start)} ms, ${format.bytes(bytes.length)}`,
      h("span", { class: "quiet-text" }, ` ${response.headers.get("Content-Type") ?? ""}${isOver ? "" : " …"}`));
    set(shown, { hidden: bytes.length === 0 });
    setText(shown, said(bytes, isOver));
  };
  draw(new Uint8Array(), false);
  draw(await readAll(response, signal, (bytes) => draw(bytes, false)), true);
}

/** All of an answer, or what has come of it when somebody stops it: a stream never ends. */
async function readAll(response, signal, told) {
  const reader = response.body?.getReader();
  let bytes = new Uint8Array();
  try {
    for (;;) {
      const { done, value } = reader ? await reader.read() : { done: true };
      if (done) return bytes;
      const longer = new Uint8Array(bytes.length + value.length);
      longer.set(bytes);
      longer.set(value, bytes.length);
      bytes = longer;
      told(bytes);
    }
  } catch (error) {
    if (signal.aborted) return bytes;
    throw error;
  }
}

function said(bytes, isOver) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, SHOWN_BYTES), { stream: !isOver || bytes.length > SHOWN_BYTES });
  } catch {
    return hexDump(bytes.subarray(0, SHOWN_BYTES / 16));
  }
  const cut = bytes.length > SHOWN_BYTES ? "\n… (only the beginning is shown)" : "";
  return visible((isOver && !cut && prettyJson(text)) || text) + cut;
}

function asCurl({ url, method, type, body }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const lines = [
    `curl${method === "GET" ? "" : ` -X ${method}`} ${quoted(url)}`,
    authorization().Authorization ? '-H "Authorization: Bearer $QUIVER_KEY"' : null,
    body === undefined ? null : `-H ${quoted(`Content-Type: ${type}`)}`,
    body === undefined ? null : `--data-binary ${quoted(body)}`,
  ];
  return lines.filter(Boolean).join(" \\\n  ");
}
