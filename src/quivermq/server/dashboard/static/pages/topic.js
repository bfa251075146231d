// One topic: its figures, groups, partitions, segments and settings.

import { action } from "../access.js";
import { path } from "../api.js";
import { fill, h } from "../dom.js";
import * as format from "../format.js";
import { live } from "../live.js";
import { problem } from "../notice.js";
import { joined, past } from "../past.js";
import { ratePlot } from "../plot.js";
import { grouped } from "../settings_form.js";
import { said, settingsSpec } from "../settings_spec.js";
import { link } from "../site.js";
import { table } from "../table.js";
import { tiles } from "../tiles.js";
import { addPartitions, changeSettings, deleteTopic, purgeTopic } from "../topic_forms.js";

const REFRESH_MS = 3000;
const SEGMENTS_PAGE = 200;
const LANES = ["high", "normal", "low"];

export async function render(ctx) {
  const name = ctx.params.topic;
  const parts = {
    links: h("nav", { class: "crumbs", "aria-label": `More about ${name}` }),
    notice: h("div", {}),
    figures: topicTiles(name),
    rates: ratePlot(ctx.signal),
    groups: groupTable(name),
    lanes: laneTable(name),
    settings: h("div", { class: "card pad" }, h("p", { class: "quiet-text" }, "Loading…")),
  };
  let shown = null;
  const refresh = async () => {
    try {
      const isFirst = shown === null;
      shown = await ctx.api.get(path("topics", name));
      fill(parts.notice);
      parts.lanes.update(shown.lanes);
      if (isFirst) await ctx.load(parts.settings, () => settingsList(ctx, shown));
    } catch (error) {
      if (!ctx.signal.aborted) fill(parts.notice, problem(error, refresh));
    }
  };
  const reloaded = async () => {
    await refresh();
    await ctx.load(parts.settings, () => settingsList(ctx, shown));
  };
  ctx.head(
    action("Change settings", "admin", () => changeSettings(ctx, name, reloaded)),
    action("Add partitions", "admin", () => shown && addPartitions(ctx, name, shown.partitions, reloaded)),
    action("Purge", "admin", () => shown && purgeTopic(ctx, shown), { class: "danger" }),
    action("Delete", "admin", () => shown && deleteTopic(ctx, shown), { class: "danger" }),
  );
  ctx.add(
    parts.links, parts.notice, parts.figures.element,
    h("div", { class: "columns" }, parts.rates.element, section("Groups", parts.groups.element)),
    section("Partitions and lanes", parts.lanes.element),
    segmentsSection(ctx, name),
    section("Settings", parts.settings),
  );
  drawLinks(parts.links, name, null);
  watch(ctx, name, parts, () => shown);
  ctx.onTopic(({ topic, change }) => {
    if (topic === name && change !== "deleted") reloaded();
    else if (topic === name) fill(parts.notice, problem(new Error(`${name} was deleted.`)));
  });
  await refresh();
  ctx.every(REFRESH_MS, refresh);
}

function section(title, ...content) {
  return h("section", { class: "section" }, h("div", { class: "section-head" }, h("h2", {}, title)), content);
}

function drawLinks(place, name, topic) {
  const counted = (text, number) => (number ? `${text} (${format.count(number)})` : text);
  fill(
    place,
    h("a", { href: link("messages", name) }, "Messages"),
    h("a", { href: link("dead-letters", name) }, counted("Dead letters", topic?.dead_letters)),
    h("a", { href: link("delayed", name) }, counted("Delayed", topic?.delayed)),
  );
}

// What moves.

function topicTiles(name) {
  return tiles([
    { id: "messages", label: "Messages", href: link("messages", name) },
    { id: "bytes", label: "Size" },
    { id: "published", label: "Published/s" },
    { id: "delivered", label: "Delivered/s" },
    { id: "acked", label: "Acked/s" },
    { id: "lag", label: "Lag", hint: "That of the group that is furthest behind" },
    { id: "oldest", label: "Oldest unacked" },
    { id: "dead", label: "Dead letters", href: link("dead-letters", name) },
  ]);
}

function watch(ctx, name, parts, shown) {
  const before = past(ctx, { topic: name }, () => drawRates());
  const drawRates = () => {
    const points = joined(before.points, live.history.topicPoints(name));
    if (points.length) parts.rates.update(points, points.at(-1).t);
  };
  let drawn = "";
  ctx.onStats((data) => {
    const topic = data.topics[name];
    if (!topic) return;
    const rates = live.history.topicRates(name);
    const groups = Object.values(topic.groups);
    const oldest = Math.max(0, ...groups.map((group) => group.oldest_unacked_ms));
    parts.figures.update({
      messages: { value: format.short(topic.messages), note: format.many(topic.partitions, "partition") },
      bytes: { value: format.bytes(topic.bytes) },
      published: { value: format.rate(rates.published), note: `${format.short(topic.published)} since the start` },
      delivered: { value: format.rate(rates.delivered) },
      acked: { value: format.rate(rates.acked) },
      lag: { value: format.short(Math.max(0, ...groups.map((group) => group.pending))), note: format.many(groups.length, "group") },
      oldest: { value: oldest ? format.duration(oldest) : "none" },
      dead: { value: format.short(topic.dead_letters), level: topic.dead_letters ? "warn" : "" },
    });
    drawRates();
    parts.groups.update(groups);
    const links = `${topic.dead_letters} ${topic.delayed}`;
    if (links !== drawn) drawLinks(parts.links, name, topic);
    drawn = links;
    if (shown()) Object.assign(shown(), { messages: topic.messages, groups: topic.groups });
  });
}

function groupTable(topic) {
  const rates = (group) => live.history.groupRates(topic, group.group);
  const number = (id, title, value, told = format.count) => ({ id, title, kind: "num", sort: "desc", value, cell: (group) => told(value(group)) });
  return table({
    caption: `Groups of ${topic}`,
    key: (group) => group.group,
    empty: "No group reads this topic yet. One comes to be with its first receive.",
    sorted: { id: "lag", down: true },
    columns: [
      { id: "group", title: "Group", value: (group) => group.group, mark: (group) => group.group, cell: (group) => h("a", { href: link("groups", topic, group.group) }, group.group) },
      number("lag", "Lag", (group) => group.pending),
      number("in_flight", "In flight", (group) => group.in_flight),
      number("retrying", "Retrying", (group) => group.retrying),
      number("oldest", "Oldest", (group) => group.oldest_unacked_ms, (ms) => (ms ? format.duration(ms) : "none")),
      number("delivered", "Out/s", (group) => rates(group).delivered, format.rate),
      number("acked", "Acked/s", (group) => rates(group).acked, format.rate),
    ],
  });
}

// What lies on the disk.

function laneTable(topic) {
  const number = (id, title, value, told = format.count, hint = undefined) => ({ id, title, hint, kind: "num", sort: false, value, cell: (lane) => told(value(lane)) });
  return table({
    caption: `Partitions of ${topic}`,
    key: (lane) => `${lane.partition}-${LANES.indexOf(lane.priority)}`,
    sorted: { id: "partition", down: false },
    columns: [
      { id: "partition", title: "Partition", kind: "tight", value: (lane) => lane.partition },
      {
        id: "priority", title: "Lane", kind: "tight", value: (lane) => lane.priority, sort: false, mark: (lane) => lane.priority,
        cell: (lane) => h("a", { href: `${link("messages", topic)}?partition=${lane.partition}&priority=${lane.priority}` }, lane.priority),
      },
      number("messages", "Messages", (lane) => lane.end - lane.start),
      number("bytes", "Size", (lane) => lane.bytes, format.bytes),
      number("start", "First offset", (lane) => lane.start),
      number("end", "Next offset", (lane) => lane.end),
      number("sealed", "Sealed below", (lane) => lane.sealed, format.count, "Files below this offset do not change any more"),
      number("unsynced", "Not yet synced", (lane) => lane.end - lane.synced, format.count, "Messages that a power loss could take"),
    ],
  });
}

function segmentsSection(ctx, name) {
  const place = h("div", { class: "section" });
  const details = h("details", { class: "card pad" }, h("summary", {}, "Segments: the files of the logs"), place);
  let isLoaded = false;
  details.addEventListener("toggle", () => {
    if (details.open && !isLoaded) {
      isLoaded = true;
      ctx.load(place, () => segmentList(ctx, name));
    }
  });
  return details;
}

async function segmentList(ctx, name) {
  const rows = [];
  const list = segmentTable(name);
  const more = h("button", { type: "button" }, "Show more");
  const get = async () => {
    const last = rows.at(-1);
    const after = last && `${last.partition}-${LANES.indexOf(last.priority)}-${last.base_offset}`;
    const { segments } = await ctx.api.get(path("topics", name, "segments"), { query: { limit: SEGMENTS_PAGE, after } });
    rows.push(...segments);
    list.update(rows);
    more.hidden = segments.length < SEGMENTS_PAGE;
  };
  more.addEventListener("click", () => ctx.attempt(get));
  await get();
  return [list.element, more];
}

function segmentTable(name) {
  const number = (id, title, value, told = format.count) => ({ id, title, kind: "num", sort: false, value, cell: (each) => told(value(each)) });
  return table({
    caption: `Segments of ${name}`,
    key: (each) => `${each.partition}-${each.priority}-${each.base_offset}`,
    empty: "Nothing is stored yet.",
    sorted: { id: "none" },
    columns: [
      { id: "place", title: "Lane", sort: false, value: (each) => `${each.partition} ${each.priority}` },
      number("base", "First offset", (each) => each.base_offset),
      number("messages", "Messages", (each) => each.end_offset - each.base_offset),
      number("bytes", "Size", (each) => each.bytes, format.bytes),
      { id: "state", title: "State", sort: false, value: (each) => (each.sealed ? "sealed" : "open") },
      number("first", "Oldest message", (each) => each.first_timestamp, format.time),
      number("last", "Newest message", (each) => each.last_timestamp, format.time),
    ],
  });
}

// How it is set.

async function settingsList(ctx, shown) {
  const spec = await settingsSpec(ctx.api);
  const groups = grouped(spec, ["partitions"]).map(([title, names]) => {
    const rows = names.map((name) => [
      h("dt", { title: spec.get(name).doc }, h("code", {}, name)),
      h("dd", {}, said(spec.get(name), shown.settings[name])),
    ]);
    return h("div", {}, h("h3", {}, title), h("dl", { class: "facts" }, rows));
  });
  return [
    h("p", { class: "quiet-text" }, `${format.many(shown.partitions, "partition")}, created ${format.time(shown.created_at)}`),
    h("div", { class: "settings-list" }, groups),
  ];
}
