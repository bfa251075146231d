// Publishing one message by hand.

import { path } from "../api.js";
import { formDialog } from "../dialog.js";
import { fill, freshId, h, setText } from "../dom.js";
import * as format from "../format.js";
import { live } from "../live.js";
import { contentFields, field, select } from "../message_form.js";
import { picker } from "../picker.js";
import { done } from "../toast.js";

const UNITS = [["1000", "seconds"], ["60000", "minutes"], ["3600000", "hours"], ["86400000", "days"]];
const PRIORITIES = [["high", "High"], ["normal", "Normal"], ["low", "Low"]];

/** Ask for a message and publish it. Resolves to what the broker answered, or undefined when nothing was published. */
export async function publishDialog(ctx, topic, partitions, message = { value: "" }) {
  const content = contentFields(message);
  const priority = select(PRIORITIES, message.priority || "normal");
  const partition = select(partitionsOf(partitions), "");
  let target = topic;
  const topics = picker({ label: "Topic", value: topic, names: () => Object.keys(live.latest?.topics || { [topic]: null }), onpick: (name) => {
    target = name;
    setText(dialog.element.querySelector("h2"), `Publish to ${name}`);
    fill(partition, partitionsOf(live.latest?.topics[name]?.partitions ?? 1).map(([value, words]) => h("option", { value }, words)));
  } });
  const delay = durationField("Deliver after", "Delivered at once when empty.");
  const ttl = durationField("Expires after", "Never delivered after that. As the topic is set when empty.");
  const dedupId = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const form = h(
    "form", { id: freshId("publish"), novalidate: true },
    content.elements,
    h("div", { class: "fields" }, topics.element, field("Priority", priority), field("Partition", partition), delay.element, ttl.element,
      field("Deduplication id", dedupId, "A second message with the same id is not stored.")),
  );
  const dialog = formDialog({ title: `Publish to ${topic}`, action: "Publish", form, wide: true, async apply() {
    const body = { ...content.read(), priority: priority.value, ...delay.read("delay_ms"), ...ttl.read("ttl_ms") };
    if (partition.value !== "") body.partition = Number(partition.value);
    if (dedupId.value) body.dedup_id = dedupId.value;
    const put = await ctx.api.post(path("topics", target, "messages"), { body });
    done(wordsFor(put));
    return put;
  } });
  form.querySelector("textarea, input").focus();
  return dialog.closed;
}

function partitionsOf(count) {
  return [["", "By its key, or in turn"], ...Array.from({ length: count }, (_, number) => [number, String(number)])];
}

function wordsFor({ partition, offset, duplicate, scheduled_id: scheduledId }) {
  if (duplicate) return "This deduplication id was there before: nothing new was stored.";
  if (scheduledId) return "Published. It waits among the delayed messages until it is due.";
  return `Published to partition ${partition} at offset ${format.count(offset)}.`;
}

/** A number and its unit. */
function durationField(label, help) {
  const number = h("input", { type: "number", min: "0", step: "any", inputmode: "decimal" });
  const unit = select(UNITS, "1000", { "aria-label": `${label}: unit` });
  const element = field(label, number, help);
  const joined = h("div", { class: "joined" });
  number.replaceWith(joined);
  joined.append(number, unit);
  return {
    element,
    read(name) {
      if (number.value === "" && !number.validity.badInput) return {};
      const ms = Math.round(Number(number.value) * Number(unit.value));
      if (!Number.isFinite(ms) || ms <= 0 || number.validity.badInput) {
        number.focus();
        throw new Error(`${label}: give a number above zero, or leave it empty.`);
      }
      return { [name]: ms };
    },
  };
}
