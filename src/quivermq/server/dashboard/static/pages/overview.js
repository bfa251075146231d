// The overview: whether all is well, what is going on, and where to look first.

import { fill, h } from "../dom.js";
import * as format from "../format.js";
import { live } from "../live.js";
import { joined, past } from "../past.js";
import { plot, ratePlot, sparkline } from "../plot.js";
import { stateTag } from "../states.js";
import { link } from "../site.js";
import { table } from "../table.js";
import { tiles } from "../tiles.js";

const LISTED = 8;
const ALERTS_SHOWN = 8;

export function render(ctx) {
  const health = healthView();
  const figures = tiles([
    { id: "backlog", label: "Backlog", hint: "Messages that some group has not finished: pending, in flight, retrying, delayed" },
    { id: "lag", label: "Lag", hint: "Messages that nobody of a group has had yet", href: "#/groups" },
    { id: "in_flight", label: "In flight", hint: "Messages that a consumer has right now", href: "#/groups" },
    { id: "oldest", label: "Oldest unacked", hint: "For how long the oldest message waits that is not finished", href: "#/groups" },
    { id: "delayed", label: "Delayed", hint: "Messages that wait to be due", href: "#/delayed" },
    { id: "dead", label: "Dead letters", hint: "Messages that were given up", href: "#/dead-letters" },
    { id: "stored", label: "Stored", hint: "Messages in all logs", href: "#/topics" },
    { id: "disk", label: "Disk free", hint: "Room on the disk of the broker" },
  ]);
  const rates = ratePlot(ctx.signal);
  const waiting = plot({
    title: "Waiting", unit: "messages", format: format.short, signal: ctx.signal,
    series: [
      { id: "backlog", title: "backlog", color: 4 },
      { id: "lag", title: "lag", color: 6 },
      { id: "in_flight", title: "in flight", color: 3 },
    ],
  });
  const latency = plot({
    title: "Latency", unit: "ms", format: milliseconds, signal: ctx.signal,
    series: [
      { id: "publish_p50", title: "publish p50", color: 1 },
      { id: "publish_p99", title: "p99", color: 4, dashed: true },
      { id: "age_p50", title: "end to end p50", color: 2 },
      { id: "age_p99", title: "p99", color: 3, dashed: true },
    ],
  });
  const syncs = plot({
    title: "Fsync", unit: "ms", format: milliseconds, signal: ctx.signal,
    series: [{ id: "fsync_p50", title: "p50", color: 4 }, { id: "fsync_p99", title: "p99", color: 6, dashed: true }],
  });
  const topics = hottest();
  const groups = slowest();
  ctx.head(health.well);
  ctx.add(
    health.troubles,
    figures.element,
    h("div", { class: "columns" }, rates.element, waiting.element),
    h(
      "div", { class: "columns" },
      section("Busiest topics", h("a", { href: "#/topics" }, "All topics"), topics.element),
      section("Groups behind", h("a", { href: "#/groups" }, "All groups"), groups.element),
    ),
    h("div", { class: "columns" }, latency.element, syncs.element),
  );
  const before = past(ctx, {}, () => drawPlots());
  const drawPlots = () => {
    const points = joined(before.points, live.history.points);
    const end = points.at(-1)?.t;
    if (end === undefined) return;
    rates.update(points, end);
    waiting.update(points, end);
    latency.update(before.points, end);
    syncs.update(before.points, end);
  };
  const draw = (data) => {
    const last = live.history.points.at(-1);
    health.update(data);
    figures.update(tileFigures(data, last));
    drawPlots();
    topics.update(busiestOf(data));
    groups.update(behindOf(data));
  };
  ctx.onStats(draw);
  live.addEventListener("state", () => health.update(live.latest), { signal: ctx.signal });
  health.update(live.latest);
}

function section(title, more, content) {
  return h("section", { class: "section" }, h("div", { class: "section-head" }, h("h2", {}, title), more), content);
}

function tileFigures(data, last) {
  const used = data.bytes;
  // Coloured as the alerts say, and not by rules of their own.
  const alerted = (...names) => (data.alerts.some(({ alert }) => names.includes(alert)) ? "warn" : "");
  const oldest = last.oldest_unacked_ms;
  return {
    backlog: { value: format.short(last.backlog), note: last.retrying ? `${format.short(last.retrying)} retrying` : "" },
    lag: { value: format.short(last.lag) },
    in_flight: { value: format.short(last.in_flight) },
    oldest: { value: oldest ? format.duration(oldest) : "none", level: alerted("QuiverConsumersFallBehind") },
    delayed: { value: format.short(last.delayed) },
    dead: { value: format.short(last.dead_letters), level: alerted("QuiverDeadLetters", "QuiverDeadLettersWait") },
    stored: { value: format.short(last.messages), note: format.many(Object.keys(data.topics).length, "topic") },
    disk: {
      value: format.bytes(data.free_bytes),
      note: `${format.bytes(used)} used`,
      level: alerted("QuiverDiskNearlyFull", "QuiverDiskFillsUp"),
    },
  };
}

// Health.

/** One line while all is well, and a notice for each thing that is not. Drawn only when it says something new. */
function healthView() {
  const well = h("div", { role: "status" });
  const troubles = h("div", { class: "health" });
  let drawn = "";
  const draw = (mark, line, notices) => {
    if (mark === drawn) return;
    drawn = mark;
    fill(well, line);
    fill(troubles, notices);
  };
  return {
    well,
    troubles,
    update(data) {
      if (live.state === "reconnecting" || live.state === "offline") {
        draw("away", null, null);
      } else if (!data) {
        draw("waiting", h("p", { class: "quiet-text" }, "Waiting for the first figures…"), null);
      } else if (data.alerts.length) {
        const { alerts } = data;
        draw(JSON.stringify(alerts), summaryLine(alerts), [
          alerts.slice(0, ALERTS_SHOWN).map(alertLine),
          alerts.length > ALERTS_SHOWN ? rest(alerts.slice(ALERTS_SHOWN)) : null,
        ]);
      } else {
        const topics = Object.values(data.topics);
        const groups = topics.reduce((sum, topic) => sum + Object.keys(topic.groups).length, 0);
        const words = `${format.many(topics.length, "topic")}, ${format.many(groups, "group")}, nothing is wrong`;
        draw(words, h("p", { class: "well" }, h("span", { class: "dot good", "aria-hidden": "true" }), h("strong", {}, "All is well"), h("span", { class: "quiet-text" }, words)), null);
      }
    },
  };
}

const SEVERITIES = { page: ["bad", "act now"], ticket: ["warn", "look into it"] };

function summaryLine(alerts) {
  const urgent = alerts.filter(({ severity }) => severity === "page").length;
  const words = [urgent && `${urgent} to act on now`, alerts.length - urgent && `${alerts.length - urgent} to look into`].filter(Boolean).join(", ");
  return h("p", { class: "well" }, h("span", { class: `dot ${urgent ? "bad" : "warn"}`, "aria-hidden": "true" }), h("strong", {}, format.many(alerts.length, "alert")), h("span", { class: "quiet-text" }, words));
}

/** One alert: what it is about, as a link, and since when. */
function alertLine({ alert, severity, summary, topic, group, partition, priority, since }) {
  const [level, word] = SEVERITIES[severity] || SEVERITIES.page;
  const isAbout = partition !== null && partition !== undefined ? `, partition ${partition} (${priority})` : "";
  return h(
    "p", { class: `notice ${level}`, role: "alert" },
    h("span", { class: `tag ${level}`, title: alert }, word),
    h("a", { class: "alert-link", href: placeOf(alert, topic, group) }, summary),
    h("span", { class: "quiet-text" }, `${[topic, group].filter(Boolean).join(", ") || "Broker"}${isAbout}, since ${format.ago(since, live.latest.time).replace(/ ago$/, "")}`),
  );
}

function rest(alerts) {
  return h("details", {}, h("summary", {}, `${format.many(alerts.length, "more alert")}`), h("div", { class: "health" }, alerts.slice(0, 200).map(alertLine)));
}

function placeOf(alert, topic, group) {
  if (topic && alert.startsWith("QuiverDeadLetters")) return link("dead-letters", topic);
  if (topic && group) return link("groups", topic, group);
  return topic ? link("topics", topic) : "#/topics";
}

const milliseconds = (ms) => (ms < 10 ? `${ms.toFixed(1)} ms` : format.duration(ms));

// Where to look.

function busiestOf(data) {
  return Object.values(data.topics)
    // Dead letters come on their own, and have a page of their own.
    .filter((topic) => !topic.dead_letters_of)
    .map((topic) => ({ ...topic, rates: live.history.topicRates(topic.topic) }))
    .sort((a, b) => activity(b) - activity(a) || b.messages - a.messages || a.topic.localeCompare(b.topic))
    .slice(0, LISTED);
}

const activity = ({ rates }) => (rates.published || 0) + (rates.delivered || 0);

function hottest() {
  return table({
    caption: "Topics with the most messages a second",
    compact: true,
    key: (topic) => topic.topic,
    empty: "No topics yet: publish something, or create one.",
    sorted: { id: "published", down: true },
    columns: [
      { id: "topic", title: "Topic", value: (topic) => topic.topic, cell: topicLink, mark: (topic) => topic.topic },
      { id: "trend", title: "Last minute", sort: false, kind: "tight", minor: true, cell: (topic) => sparkline(live.history.topicSeries(topic.topic)) },
      { id: "published", title: "In/s", kind: "num", sort: "desc", value: (topic) => topic.rates.published, cell: (topic) => format.rate(topic.rates.published) },
      { id: "delivered", title: "Out/s", kind: "num", sort: "desc", value: (topic) => topic.rates.delivered, cell: (topic) => format.rate(topic.rates.delivered) },
      { id: "messages", title: "Messages", kind: "num", minor: true, sort: "desc", value: (topic) => topic.messages, cell: (topic) => format.count(topic.messages) },
    ],
  });
}

const topicLink = (topic) => h("a", { href: link("topics", topic.topic) }, topic.topic);

function behindOf(data) {
  return Object.values(data.topics)
    .flatMap((topic) => Object.values(topic.groups))
    .filter((group) => group.pending || group.in_flight || group.retrying)
    .sort((a, b) => b.pending - a.pending || b.oldest_unacked_ms - a.oldest_unacked_ms)
    .slice(0, LISTED);
}

function slowest() {
  return table({
    caption: "Groups with the most messages that they have not had",
    compact: true,
    key: (group) => `${group.topic}/${group.group}`,
    empty: "Every group has finished with everything.",
    sorted: { id: "lag", down: true },
    columns: [
      {
        id: "group", title: "Group", value: (group) => `${group.group} ${group.topic}`, mark: (group) => group.group,
        // Words stand beside the link, so its colour alone would not tell it apart.
        cell: (group) => h("span", { class: "beside" }, h("a", { href: link("groups", group.topic, group.group) }, group.group), h("span", { class: "quiet-text" }, " of ", group.topic)),
      },
      { id: "state", title: "State", kind: "tight", value: (group) => group.state, mark: (group) => group.state, cell: (group) => [stateTag(group.state)] },
      { id: "lag", title: "Lag", kind: "num", sort: "desc", value: (group) => group.pending, cell: (group) => format.count(group.pending) },
      { id: "in_flight", title: "In flight", kind: "num", minor: true, sort: "desc", value: (group) => group.in_flight, cell: (group) => format.count(group.in_flight) },
      { id: "oldest", title: "Oldest", kind: "num", sort: "desc", value: (group) => group.oldest_unacked_ms, cell: (group) => format.duration(group.oldest_unacked_ms) },
      { id: "acked", title: "Acked/s", kind: "num", minor: true, sort: "desc", value: (group) => live.history.groupRates(group.topic, group.group).acked, cell: (group) => format.rate(live.history.groupRates(group.topic, group.group).acked) },
    ],
  });
}
