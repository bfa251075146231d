// What of a topic is shown: which lanes, from where on, or what to look for. The address says the same.

import { fill, h } from "../dom.js";
import { live } from "../live.js";
import { field, select } from "../message_form.js";
import { picker } from "../picker.js";
import { link, linkToMessage, replaceAddress } from "../site.js";

const MODES = [["newest", "Newest first"], ["offset", "From an offset"], ["time", "From a time"], ["find", "With a key, a text or in a time"]];

/** What to show: {element, read(), choice()}. `read` throws an Error that says what is missing. */
export function toolbar(ctx, { topic, partitions }, onsubmit) {
  const { query } = ctx;
  const topics = picker({ label: "Topic", value: topic, names: () => Object.keys(live.latest?.topics || {}), onpick: (name) => ctx.go("messages", name) });
  const partition = select([["", "All"], ...Array.from({ length: partitions }, (_, number) => [number, String(number)])], query.partition ?? "");
  const priority = select([["", "All"], ["high", "High"], ["normal", "Normal"], ["low", "Low"]], query.priority ?? "");
  const mode = select(MODES, modeOf(query));
  const offset = h("input", { type: "number", min: "0", step: "1", inputmode: "numeric", value: query.offset ?? "", placeholder: "0" });
  const moment = h("input", { type: "datetime-local", step: "1", value: query.time ?? "" });
  const key = h("input", { type: "search", autocomplete: "off", spellcheck: "false", value: query.key ?? "" });
  const text = h("input", { type: "search", autocomplete: "off", spellcheck: "false", value: query.text ?? "" });
  const since = h("input", { type: "datetime-local", step: "1", value: query.since ?? "" });
  const until = h("input", { type: "datetime-local", step: "1", value: query.until ?? "" });
  const parts = {
    offset: [field("Offset", offset)], time: [field("Time", moment)],
    find: [field("Key is", key), field("Contains", text), field("From", since), field("Until", until)],
  };
  const places = h("div", { class: "contents" });
  const draw = () => fill(places, parts[mode.value] || []);
  const choice = () => ({ partition: partition.value, priority: priority.value });
  const element = h(
    "form", { class: "card pad toolbar", "aria-label": "What to show", novalidate: true },
    topics.element, field("Partition", partition), field("Priority", priority), field("Show", mode), places,
    h("button", { type: "submit" }, "Show"),
  );
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    onsubmit();
  });
  mode.addEventListener("change", () => {
    draw();
    places.querySelector("input")?.focus();
    if (mode.value === "newest") onsubmit();
  });
  for (const each of [partition, priority]) each.addEventListener("change", onsubmit);
  draw();
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
        const [from, to] = [momentOf(since, "From"), momentOf(until, "Until")];
        if (!key.value && !text.value && from === undefined && to === undefined) throw new Error("Give a key, a text to look for, or a time.");
        if (from !== undefined && to !== undefined && from >= to) throw new Error("The time begins after it ends.");
        Object.assign(asked, { key: key.value, text: text.value, since: since.value, until: until.value, range: { since: from, until: to } });
      }
      return asked;
    },
  };
}

/** What a field for a day and a time says, in unix microseconds; undefined when it is empty. */
function momentOf(input, label) {
  if (input.validity.badInput) throw new Error(`${label}: give the day and the time, or leave it empty.`);
  return input.value === "" ? undefined : new Date(input.value).getTime() * 1000;
}

function modeOf(query) {
  if (query.offset !== undefined) return "offset";
  if (query.time !== undefined) return "time";
  return ["key", "text", "since", "until"].some((name) => query[name] !== undefined) ? "find" : "newest";
}

/** The address of what is shown, so that it can be sent to somebody. `place` is the message in the panel, or null. */
export function showAddress(topic, asked, place) {
  const told = ["partition", "priority", "offset", "time", "key", "text", "since", "until"].filter((name) => asked[name] !== undefined && asked[name] !== "");
  const query = new URLSearchParams(told.map((name) => [name, asked[name]]));
  const where = place ? linkToMessage({ topic, ...place }) : link("messages", topic);
  replaceAddress(where + (told.length ? `?${query}` : ""));
}
