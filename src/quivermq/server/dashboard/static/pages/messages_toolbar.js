// What of a topic is shown: which lanes, from where on, or what to look for. The address says the same.

import { fill, h } from "../dom.js";
import { live } from "../live.js";
import { field, select } from "../message_form.js";
import { link } from "../site.js";

const MODES = [["newest", "Newest first"], ["offset", "From an offset"], ["time", "From a time"], ["find", "With a key or text"]];

/** What to show: {element, read(), choice()}. `read` throws an Error that says what is missing. */
export function toolbar(ctx, { topic, partitions }, onsubmit) {
  const { query } = ctx;
  const names = Object.keys(live.latest?.topics || {}).concat(topic);
  const topics = select([...new Set(names)].sort().map((name) => [name, name]), topic);
  const partition = select([["", "All"], ...Array.from({ length: partitions }, (_, number) => [number, String(number)])], query.partition ?? "");
  const priority = select([["", "All"], ["high", "High"], ["normal", "Normal"], ["low", "Low"]], query.priority ?? "");
  const mode = select(MODES, modeOf(query));
  const offset = h("input", { type: "number", min: "0", step: "1", inputmode: "numeric", value: query.offset ?? "", placeholder: "0" });
  const moment = h("input", { type: "datetime-local", step: "1", value: query.time ?? "" });
  const key = h("input", { type: "search", autocomplete: "off", spellcheck: "false", value: query.key ?? "" });
  const text = h("input", { type: "search", autocomplete: "off", spellcheck: "false", value: query.text ?? "" });
  const parts = {
    offset: [field("Offset", offset)], time: [field("Time", moment)],
    find: [field("Key is", key), field("Contains", text)],
  };
  const places = h("div", { class: "contents" });
  const draw = () => fill(places, parts[mode.value] || []);
  const choice = () => ({ partition: partition.value, priority: priority.value });
  const element = h(
    "form", { class: "card pad toolbar", "aria-label": "What to show", novalidate: true },
    field("Topic", topics), field("Partition", partition), field("Priority", priority), field("Show", mode), places,
    h("button", { type: "submit" }, "Show"),
  );
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    onsubmit();
  });
  topics.addEventListener("change", () => ctx.go("messages", topics.value));
  mode.addEventListener("change", () => {
    draw();
    places.querySelector("input")?.focus();
    if (mode.value === "newest") onsubmit();
  });
  for (const each of [partition, priority]) each.addEventListener("change", onsubmit);
  draw();
  ctx.onStats(({ topics: all }) => {
    const known = new Set([...topics.options].map(({ value }) => value));
    for (const name of Object.keys(all).sort()) if (!known.has(name)) topics.append(h("option", { value: name }, name));
  });
  return {
    element,
    choice,
    read() {
      const asked = { ...choice(), mode: mode.value };
      if (mode.value === "offset") {
        if (!/^\d{1,15}$/.test(offset.value)) throw new Error("Give the offset to begin with, a whole number.");
        asked.offset = Number(offset.value);
      } else if (mode.value === "time") {
        asked.time = moment.value;
        asked.timestamp = new Date(moment.value).getTime() * 1000;
        if (!Number.isFinite(asked.timestamp)) throw new Error("Give the day and the time to begin with.");
      } else if (mode.value === "find") {
        if (!key.value && !text.value) throw new Error("Give a key, or a text to look for, or both.");
        Object.assign(asked, { key: key.value, text: text.value });
      }
      return asked;
    },
  };
}

function modeOf(query) {
  if (query.offset !== undefined) return "offset";
  if (query.time !== undefined) return "time";
  return query.key !== undefined || query.text !== undefined ? "find" : "newest";
}

/** Let the address say what is shown, so that it can be sent to somebody, without going there again. */
export function remember(topic, asked) {
  const told = ["partition", "priority", "offset", "time", "key", "text"].filter((name) => asked[name] !== undefined && asked[name] !== "");
  const query = new URLSearchParams(told.map((name) => [name, asked[name]]));
  history.replaceState(null, "", link("messages", topic) + (told.length ? `?${query}` : ""));
}
