// What is in a message, as text, JSON or bytes. Nothing here makes an element: it is all text in the end.

const SHOWN_BYTES = 256 * 1024;
const PREVIEW_CHARACTERS = 300;
const PREVIEW_BYTES = 24;
const HEX_COLUMNS = 16;
const INDENT = "  ";
// What is nested deeper is indented no further: each line of it would be as long as it is deep.
const INDENTED_MAX = 40;

// What no text of people has: a value with many of these is no text, though its bytes happen to be UTF-8.
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;
// What is never shown as it is: controls, what has no width, and what turns around or hides the text behind it.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
// Joiners, non-joiners and direction marks are part of how emoji, Persian, Hindi or Hebrew are written. Beside plain
// Latin letters they have no use but to make two names look like one.
const STRAY_JOINERS = /(?<![^\u0000-\u007f\u200c-\u200f\u061c])[\u200c-\u200f\u061c]+(?![^\u0000-\u007f\u200c-\u200f\u061c])/g;

const encoder = new TextEncoder();

/** The bytes of base64, or null when it is none. */
export function fromBase64(text) {
  let raw;
  try {
    raw = atob(text);
  } catch {
    return null;
  }
  // A plain loop: a call for each byte would take seconds for a large message.
  const bytes = new Uint8Array(raw.length);
  for (let index = 0; index < raw.length; index += 1) bytes[index] = raw.charCodeAt(index);
  return bytes;
}

/** Bytes as base64. */
export function toBase64(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(text);
}

/**
 * A field of a message, `value` or `key`, as the broker tells it: {text, bytes}, text being null for what is no
 * text. null when the message has none.
 */
export function fieldOf(message, name) {
  if (typeof message[name] === "string") return { text: message[name], bytes: encoder.encode(message[name]) };
  const base64 = message[`${name}_base64`];
  return typeof base64 === "string" ? { text: null, bytes: fromBase64(base64) || new Uint8Array() } : null;
}

/** The headers of a message: [{name, text, bytes}], as `fieldOf` has them. */
export function headersOf(message) {
  return Object.entries(message.headers || {}).map(([name, content]) => {
    const told = typeof content === "string" ? { value: content } : { value_base64: content.base64 };
    return { name, ...fieldOf(told, "value") };
  });
}

/** Whether a text is one for people: a few control characters are allowed. */
function isReadable(text) {
  const start = text.slice(0, PREVIEW_CHARACTERS);
  return (start.match(CONTROLS) || []).length * 10 <= start.length;
}

/** One line that tells what a field holds: {text, isBinary}. */
export function preview(field) {
  if (field === null) return { text: "", isBinary: false };
  if (field.text === null || !isReadable(field.text)) {
    const more = field.bytes.length > PREVIEW_BYTES ? " …" : "";
    return { text: hexOf(field.bytes.subarray(0, PREVIEW_BYTES)) + more, isBinary: true };
  }
  const cut = cutAt(field.text, PREVIEW_CHARACTERS);
  const line = visible(cut).replace(/\s+/g, " ");
  return { text: field.text.length > cut.length ? `${line}…` : line, isBinary: false };
}

/**
 * Characters that nobody sees, or that change the direction of what follows, as something that can be seen: what
 * is shown has to look like what it is.
 */
export function visible(text) {
  return text.replace(STRAY_JOINERS, escaped).replace(UNSEEN, escaped);
}

function escaped(characters) {
  return Array.from(characters, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
}

/** The beginning of a text, so many characters and never half of one. */
export function cutAt(text, characters) {
  const isHalf = text.length > characters && /[\ud800-\udbff]/.test(text[characters - 1]);
  return text.slice(0, isHalf ? characters - 1 : characters);
}

/** All of a field in one piece of text: {text, isBinary}. What is no text is in hexadecimal. */
export function whole(field) {
  const isBinary = field.text === null || !isReadable(field.text);
  return { text: isBinary ? hexOf(field.bytes) : visible(field.text), isBinary };
}

/** Why a text is not JSON, or "" when it is. */
export function whyNotJson(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return error.message;
  }
}

/**
 * JSON with a line for each member; null for what is no JSON. The text itself is broken into lines, and not what a
 * parser made of it: so numbers keep all their digits, and no member is lost that is there twice. It ends some time
 * after so many characters.
 */
export function prettyJson(text, charactersMax = Infinity) {
  if (whyNotJson(text)) return null;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) || [];
  let depth = 0;
  let out = "";
  const newLine = () => `\n${INDENT.repeat(Math.min(depth, INDENTED_MAX))}`;
  for (let index = 0; index < tokens.length && out.length <= charactersMax; index += 1) {
    const token = tokens[index];
    if (token === "{" || token === "[") {
      const isEmpty = tokens[index + 1] === (token === "{" ? "}" : "]");
      depth += 1;
      out += isEmpty ? token : token + newLine();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const isEmpty = tokens[index - 1] === (token === "}" ? "{" : "[");
      out += isEmpty ? token : newLine() + token;
    } else if (token === ",") {
      out += `,${newLine()}`;
    } else {
      out += token === ":" ? ": " : token;
    }
  }
  return out;
}

/** Bytes in lines of sixteen, with their positions and what of them is ASCII. */
export function hexDump(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += HEX_COLUMNS) {
    const line = bytes.subarray(start, start + HEX_COLUMNS);
    const letters = Array.from(line, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${hexOf(line).padEnd(HEX_COLUMNS * 3 - 1)}  ${letters}`);
  }
  return lines.join("\n");
}

function hexOf(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** In which forms a field can be shown, the best one first. */
export function formsOf(field) {
  if (field.text === null) return ["hex"];
  const isStructured = /^\s*[[{]/.test(field.text) && field.text.length <= 4 * SHOWN_BYTES && !whyNotJson(field.text);
  if (isStructured) return ["json", "text", "hex"];
  return isReadable(field.text) ? ["text", "hex"] : ["hex", "text"];
}

/** A field in one of its forms, cut where it would be too much for a page: {text, isCut}. */
export function inForm(field, form) {
  if (form === "hex") {
    const shown = field.bytes.subarray(0, SHOWN_BYTES / 4);
    return { text: hexDump(shown), isCut: shown.length < field.bytes.length };
  }
  const text = form === "json" ? prettyJson(field.text, SHOWN_BYTES) : field.text;
  return { text: visible(cutAt(text, SHOWN_BYTES)), isCut: text.length > SHOWN_BYTES };
}

/** A field for people to copy: its text, or base64. */
export function copyOf(field) {
  return field.text ?? toBase64(field.bytes);
}

/** Headers for people to copy: JSON with a text for each, as publishing takes them. */
export function headersAsJson(message) {
  return JSON.stringify(message.headers || {}, null, 2);
}

/** What to send to publish the same once more. */
export function asBody(message) {
  const body = {};
  for (const name of ["value", "value_base64", "key", "key_base64"]) {
    if (message[name] !== undefined) body[name] = message[name];
  }
  if (Object.keys(message.headers || {}).length) body.headers = message.headers;
  if (message.priority && message.priority !== "normal") body.priority = message.priority;
  return body;
}

/** A command for a shell that publishes the same once more. The key is left to a variable. */
export function asCurl(address, message, needsKey) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const lines = [
    `curl ${quoted(address)}`,
    `-H ${quoted("Content-Type: application/json")}`,
    needsKey ? '-H "Authorization: Bearer $QUIVER_KEY"' : null,
    `--data-binary ${quoted(JSON.stringify(asBody(message)))}`,
  ];
  return lines.filter(Boolean).join(" \\\n  ");
}
