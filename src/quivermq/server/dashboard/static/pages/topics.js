// All topics: how deep, how fast, who is behind.

import { action } from "../access.js";
import { h, set } from "../dom.js";
import * as format from "../format.js";
import { live } from "../live.js";
import { sparkline } from "../plot.js";
import { link, remember } from "../site.js";
import { filterField, magnitude, table } from "../table.js";
import { createTopic } from "../topic_forms.js";

const GROUPS_SHOWN = 3;

export function render(ctx) {
  const list = table({
    caption: "Topics",
    key: (topic) => topic.topic,
    empty: "No topics yet. Create one, or publish to a name: that creates it, too.",
    activity: ({ rates, lag, messages }) => [magnitude((rates.published ?? 0) + (rates.delivered ?? 0)), magnitude(lag), magnitude(messages)],
    ctx,
    columns: COLUMNS,
  });
  const label = h("span", {});
  const box = h("input", { type: "checkbox", checked: ctx.query.dead_letters === "shown" });
  const deadLetterTopics = h("label", { class: "row plain" }, box, label);
  const summary = h("span", { class: "quiet-text" });
  ctx.head(filterField(list, "Filter topics"), deadLetterTopics, action("New topic", "admin", () => createTopic(ctx), { class: "primary" }));
  ctx.add(list.element, summary);
  const draw = (data) => {
    const all = Object.values(data.topics);
    const shown = box.checked ? all : all.filter(({ dead_letters_of: origin }) => !origin);
    const hidden = all.filter(({ dead_letters_of: origin }) => origin).length;
    set(deadLetterTopics, { hidden: hidden === 0 });
    label.textContent = `Dead-letter topics (${hidden})`;
    list.update(shown.map(withRates));
    summary.textContent = `${format.many(shown.length, "topic")}, ${format.many(data.messages, "message")}, ${format.bytes(data.bytes)}`;
  };
  box.addEventListener("change", () => {
    remember({ dead_letters: box.checked ? "shown" : null });
    if (live.latest) draw(live.latest);
  });
  ctx.onStats(draw);
}

function withRates(topic) {
  const groups = Object.values(topic.groups);
  return {
    ...topic,
    rates: live.history.topicRates(topic.topic),
    lag: groups.reduce((most, group) => Math.max(most, group.pending), 0),
    inFlight: groups.reduce((sum, group) => sum + group.in_flight, 0),
    groupsBehind: groups.sort((a, b) => b.pending - a.pending || a.group.localeCompare(b.group)),
  };
}

const number = (id, title, value, told = format.count, hint = undefined) => ({
  id, title, hint, kind: "num", sort: "desc", value, cell: (topic) => told(value(topic)),
});

const COLUMNS = [
  {
    id: "topic", title: "Topic", value: ({ topic }) => topic, mark: ({ topic, partitions }) => `${topic} ${partitions}`,
    cell: ({ topic, partitions }) => [
      h("a", { href: link("topics", topic) }, topic),
      partitions > 1 ? h("span", { class: "quiet-text" }, ` ×${partitions}`) : null,
    ],
  },
  number("messages", "Messages", ({ messages }) => messages),
  number("bytes", "Size", ({ bytes }) => bytes, format.bytes),
  { id: "trend", title: "Last minute", sort: false, kind: "tight", minor: true, cell: ({ topic }) => sparkline(live.history.topicSeries(topic)) },
  number("published", "In/s", ({ rates }) => rates.published, format.rate, "Published a second"),
  number("delivered", "Out/s", ({ rates }) => rates.delivered, format.rate, "Delivered a second, to all groups together"),
  number("acked", "Acked/s", ({ rates }) => rates.acked, format.rate),
  {
    id: "groups", title: "Groups and their lag", value: ({ groupsBehind }) => groupsBehind.map(({ group }) => group).join(" "), sort: false,
    mark: ({ groupsBehind }) => groupsBehind.map(({ group, pending }) => `${group} ${pending}`).join(),
    cell: groupsCell,
  },
  number("lag", "Lag", ({ lag }) => lag, format.count, "That of the group that is furthest behind"),
  number("in_flight", "In flight", ({ inFlight }) => inFlight),
  {
    id: "dead", title: "Dead", hint: "Dead letters", kind: "num", sort: "desc", value: (topic) => topic.dead_letters, mark: (topic) => String(topic.dead_letters),
    cell: (topic) => (topic.dead_letters ? [h("a", { href: link("dead-letters", topic.topic), class: "warn-text" }, format.count(topic.dead_letters))] : "0"),
  },
  {
    id: "delayed", title: "Delayed", kind: "num", sort: "desc", value: ({ delayed }) => delayed, mark: ({ delayed }) => String(delayed),
    cell: ({ topic, delayed }) => (delayed ? [h("a", { href: link("delayed", topic) }, format.count(delayed))] : "0"),
  },
];

function groupsCell({ topic, groupsBehind }) {
  const shown = groupsBehind.slice(0, GROUPS_SHOWN).map(({ group, pending }) =>
    h("a", { class: "pair", href: link("groups", topic, group) }, group, h("span", { class: pending ? "pair-lag" : "pair-lag quiet-text" }, format.short(pending))));
  const more = groupsBehind.length - shown.length;
  if (!groupsBehind.length) return "";
  return [h("div", { class: "pairs" }, shown, more > 0 ? h("span", { class: "quiet-text" }, `${more} more`) : null)];
}
