// What can be done to a topic: create, change, add partitions, delete. Each in a dialog of its own.

import { path } from "./api.js";
import { confirmTyped, formDialog } from "./dialog.js";
import { freshId, h, setText } from "./dom.js";
import { count, many } from "./format.js";
import { diffTable, settingsForm } from "./settings_form.js";
import { settingsSpec } from "./settings_spec.js";
import { done } from "./toast.js";

const PARTITIONS_MAX = 1024;

/** Ask for a name and settings, and create the topic. */
export async function createTopic(ctx) {
  const spec = await ctx.attempt(() => settingsSpec(ctx.api));
  if (!spec) return;
  const [nameId, partitionsId] = [freshId("name"), freshId("partitions")];
  const name = h("input", { id: nameId, type: "text", required: true, maxlength: 249, pattern: "[A-Za-z0-9._\\-]+", autocomplete: "off", spellcheck: "false", placeholder: "orders", title: "Letters, digits, dots, dashes and underscores" });
  const partitions = h("input", { id: partitionsId, type: "number", min: 1, max: PARTITIONS_MAX, value: "1", required: true });
  const fields = settingsForm(spec, {}, { without: ["partitions"], placeholder: "the broker's default" });
  const form = h(
    "form", { id: freshId("form") },
    h(
      "div", { class: "fields fit" },
      h("div", { class: "field" }, h("label", { for: nameId }, "Name"), name, h("span", { class: "help" }, "Letters, digits, . _ and -. Dots make levels: events.eu.orders")),
      h("div", { class: "field" }, h("label", { for: partitionsId }, "Partitions"), partitions, h("span", { class: "help" }, spec.get("partitions").doc)),
    ),
    h("details", {}, h("summary", {}, "Settings"), h("p", { class: "help" }, "What is left empty is as the broker has it."), fields.element),
  );
  formDialog({ title: "New topic", action: "Create", form, fields, wide: true, async apply() {
    const body = { name: name.value, partitions: Number(partitions.value), ...fields.changes() };
    await ctx.api.post(path("topics"), { body });
    done(`Created ${name.value}.`);
    ctx.go("topics", name.value);
  } });
}

/** Show all settings of a topic, then what would change, then change it. */
export async function changeSettings(ctx, topic, onDone) {
  const found = await ctx.attempt(() => Promise.all([settingsSpec(ctx.api), ctx.api.get(path("topics", topic))]));
  if (!found) return;
  const [spec, { settings }] = found;
  const changes = await editSettings(spec, settings, `Settings of ${topic}`, {});
  if (changes) await reviewSettings(ctx, topic, spec, settings, changes, onDone);
}

function editSettings(spec, settings, title, chosen) {
  const counter = h("span", { class: "quiet-text grow" });
  const fields = settingsForm(spec, settings, { without: ["partitions"], onchange: () => countChanges() });
  const form = h("form", { id: freshId("form") }, fields.element);
  function countChanges() {
    const changed = form.querySelectorAll(".field.changed").length;
    setText(counter, changed ? many(changed, "change") : "Nothing changed yet");
  }
  const dialog = formDialog({ title, action: "Review changes", form, fields, wide: true, beside: counter, async apply() {
    const changes = fields.changes();
    if (!Object.keys(changes).length) throw new Error("Nothing was changed.");
    return changes;
  } });
  for (const [name, value] of Object.entries(chosen)) {
    const input = form.elements.namedItem(name);
    input.value = Array.isArray(value) ? value.join(":") : String(value ?? "");
    input.dispatchEvent(new Event("input"));
    input.closest("details").open = true;
  }
  countChanges();
  return dialog.closed;
}

async function reviewSettings(ctx, topic, spec, settings, changes, onDone) {
  const form = h(
    "form", { id: freshId("form") },
    h("p", {}, `${many(Object.keys(changes).length, "setting")} of `, h("strong", {}, topic), " will change, for everybody who uses it, at once."),
    diffTable(spec, settings, changes),
  );
  const back = h("button", { type: "button" }, "Back");
  const dialog = formDialog({ title: "Review the changes", action: "Apply", form, wide: true, beside: back, keeps: "all", async apply() {
    await ctx.api.patch(path("topics", topic), { body: changes });
    done(`Changed ${many(Object.keys(changes).length, "setting")} of ${topic}.`);
    onDone?.();
  } });
  back.addEventListener("click", () => dialog.close("back"));
  if ((await dialog.closed) === "back") {
    const again = await editSettings(spec, settings, `Settings of ${topic}`, changes);
    if (again) await reviewSettings(ctx, topic, spec, settings, again, onDone);
  }
}

/** Ask how many partitions there shall be, and add them. */
export async function addPartitions(ctx, topic, present, onDone) {
  const id = freshId("partitions");
  const input = h("input", { id, type: "number", min: present + 1, max: PARTITIONS_MAX, value: String(present + 1), required: true });
  const form = h(
    "form", { id: freshId("form") },
    h("p", {}, `${topic} has ${many(present, "partition")}. A topic can get more, and never fewer.`),
    h("p", {}, "From then on keys go to other partitions than before: the messages of a key that are here already stay where they are, so the order inside a key does not hold across the change."),
    h("div", { class: "field" }, h("label", { for: id }, "Partitions in all"), input),
  );
  formDialog({ title: `Add partitions to ${topic}`, action: "Add partitions", form, async apply() {
    const partitions = Number(input.value);
    await ctx.api.patch(path("topics", topic), { body: { partitions } });
    done(`${topic} has ${many(partitions, "partition")} now.`);
    onDone?.();
  } });
}

/** Take every message out of a topic, once its name was typed. */
export async function purgeTopic(ctx, { name, messages }) {
  const text = [
    h("p", {}, "This takes every message out of ", h("strong", {}, name), `, ${many(messages, "message")} now, delayed ones included. Nobody can bring them back.`),
    h("p", {}, "The topic stays, with its settings, its groups and its dead letters."),
  ];
  if (!(await confirmTyped({ title: `Purge ${name}`, text, word: name, action: "Purge this topic" }))) return;
  await ctx.attempt(async () => {
    const { purged } = await ctx.api.post(path("topics", name, "purge"), { timeoutMs: 60_000 });
    done(`Purged ${many(purged, "message")} of ${name}.`);
  });
}

/** Delete a topic, once its name was typed. */
export async function deleteTopic(ctx, { name, messages, groups }) {
  const text = [
    h("p", {}, "This deletes ", h("strong", {}, name), ` with ${many(messages, "message")} and what ${many(Object.keys(groups).length, "group")} ${Object.keys(groups).length === 1 ? "knows" : "know"} of it. Nobody can bring it back.`),
    h("p", {}, "Its dead letters stay, in a topic of their own."),
  ];
  if (!(await confirmTyped({ title: `Delete ${name}`, text, word: name, action: "Delete this topic" }))) return;
  await ctx.attempt(async () => {
    await ctx.api.delete(path("topics", name));
    done(`Deleted ${name} with ${count(messages)} messages.`);
    ctx.go("topics");
  });
}
