// Settings of a topic as fields, in groups, with what each one does.

import { freshId, h, marked, set, setText } from "./dom.js";
import { expected, said, same, understood, written } from "./settings_spec.js";

const GROUPS = [
  ["Delivery", ["ordering", "lease_ms", "attempts_max", "backoff_ms", "backoff_ms_max", "priority_weights", "ttl_ms", "dedup_window_ms"]],
  ["Dead letters", ["dead_letters", "dead_letter_retention_ms", "dead_letter_suffix", "dead_letter_expired"]],
  ["Limits", ["backlog_messages_max", "backlog_bytes_max", "backlog_policy", "message_bytes_max"]],
  ["Retention", ["retention_ms", "retention_bytes", "retention_messages", "retention_force", "delete_finished", "cleanup"]],
  ["Storage", ["durability", "codec", "segment_bytes", "segment_messages", "segment_ms", "segments_min", "segments_max"]],
];

/** The settings in groups, each once; those that nobody put anywhere come last. */
export function grouped(spec, without = []) {
  const left = new Set([...spec.keys()].filter((name) => !without.includes(name)));
  const groups = GROUPS.map(([title, names]) => [title, names.filter((name) => left.delete(name))]);
  return [...groups, ["Others", [...left]]].filter(([, names]) => names.length);
}

/**
 * Fields for settings. `values` are those of today; a field that says the same is no change.
 * Returns {element, changes() → {name: value}, refuse(name, words)}; changes() throws an Error for what cannot be read.
 */
export function settingsForm(spec, values, { without = [], placeholder = "", onchange } = {}) {
  const fields = new Map();
  for (const [, names] of grouped(spec, without)) {
    for (const name of names) fields.set(name, field(spec.get(name), values[name], placeholder, onChange));
  }
  function onChange() {
    onchange?.();
  }
  const element = h(
    "div", { class: "settings" },
    grouped(spec, without).map(([title, names], index) =>
      h("details", { open: index === 0 }, h("summary", {}, title), h("div", { class: "fields" }, names.map((name) => fields.get(name).element)))),
  );
  return {
    element,
    changes() {
      const changed = {};
      for (const [name, each] of fields) {
        each.refuse("");
        try {
          const value = each.read();
          if (value !== undefined && !same(value, values[name])) changed[name] = value;
        } catch (error) {
          each.refuse(error.message);
          throw error;
        }
      }
      return changed;
    },
    refuse(name, words) {
      fields.get(name)?.refuse(words);
    },
  };
}

function field(spec, value, placeholder, onChange) {
  const id = freshId(spec.name);
  const isNew = value === undefined;
  const input = inputFor(spec, value, id, isNew, placeholder);
  const echo = h("span", { class: "echo" });
  const error = h("span", { class: "error", role: "alert" });
  const read = () => {
    if (isNew && input.value === "") return undefined;
    return understood(spec, input.value);
  };
  const show = () => {
    error.textContent = "";
    let words = "";
    let changed = false;
    try {
      const now = read();
      changed = now !== undefined && (isNew || !same(now, value));
      words = typeof now === "number" && spec.kind !== "number" ? said(spec, now) : "";
    } catch {
      // It is said when somebody goes on; while one types it would only disturb.
    }
    setText(echo, words);
    set(element, { class: ["field", changed && "changed"] });
    onChange();
  };
  input.addEventListener("input", show);
  const element = h(
    "div", { class: "field" },
    h("label", { for: id }, spec.name, " ", echo),
    input,
    h("span", { class: "help", id: `${id}-help` }, marked(spec.doc)),
    error,
  );
  setText(echo, typeof value === "number" && spec.kind !== "number" ? said(spec, value) : "");
  return {
    element, read,
    refuse(words) {
      setText(error, words);
      set(input, { "aria-invalid": words ? "true" : null });
      if (words) {
        element.closest("details").open = true;
        input.focus();
      }
    },
  };
}

function inputFor(spec, value, id, isNew, placeholder) {
  const props = { id, name: spec.name, "aria-describedby": `${id}-help` };
  if (spec.kind === "flag" || spec.kind === "choice") {
    const words = spec.kind === "flag" ? ["true", "false"] : spec.choices;
    const options = words.map((word) => h("option", { value: word, selected: String(value) === word }, word));
    return h("select", props, isNew ? h("option", { value: "", selected: true }, placeholder) : null, options);
  }
  const hint = isNew ? placeholder : spec.optional ? "none" : "";
  return h("input", { ...props, type: "text", autocomplete: "off", spellcheck: "false", placeholder: hint, title: expected(spec), value: written(value) });
}

/** What would change: name, from, to, and what it does. */
export function diffTable(spec, before, changes) {
  const rows = Object.entries(changes).map(([name, value]) =>
    h(
      "tr", {},
      h("th", { scope: "row" }, h("code", {}, name), h("div", { class: "help" }, marked(spec.get(name).doc))),
      h("td", { class: "num" }, h("del", {}, said(spec.get(name), before[name]))),
      h("td", { class: "arrow", "aria-hidden": "true" }, "→"),
      h("td", {}, h("ins", {}, said(spec.get(name), value))),
    ));
  return h(
    "table", { class: "diff" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Setting"), h("th", { scope: "col", class: "num" }, "Now"), h("th", {}), h("th", { scope: "col" }, "Then"))),
    h("tbody", {}, rows),
  );
}
