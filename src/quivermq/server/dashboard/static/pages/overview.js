// The overview: whether all is well, what is going on, and where to look first.

import { fill, h } from "../dom.js";
import * as format from "../format.js";
import { live } from "../live.js";
import { plot, ratePlot, sparkline } from "../plot.js";
import { link } from "../site.js";
import { table } from "../table.js";
import { tiles } from "../tiles.js";

const LISTED = 8;
// Older than this, something is not being worked on.
const OLD_MS = 60_000;
const FREE_SHARE_LOW = 0.1;
const FREE_BYTES_LOW = 1024 ** 3;

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
  const rates = ratePlot();
  const waiting = plot({
    title: "Waiting", unit: "messages", format: format.short,
    series: [
      { id: "backlog", title: "backlog", color: 4 },
      { id: "lag", title: "lag", color: 6 },
      { id: "in_flight", title: "in flight", color: 3 },
    ],
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
  );
  const draw = (data) => {
    const points = live.history.points;
    const last = points.at(-1);
    health.update(data);
    figures.update(tileFigures(data, last));
    rates.update(points, last.t);
    waiting.update(points, last.t);
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
  const share = data.free_bytes / Math.max(1, used + data.free_bytes);
  const oldest = last.oldest_unacked_ms;
  return {
    backlog: { value: format.short(last.backlog), note: last.retrying ? `${format.short(last.retrying)} retrying` : "" },
    lag: { value: format.short(last.lag) },
    in_flight: { value: format.short(last.in_flight) },
    oldest: { value: oldest ? format.duration(oldest) : "none", level: oldest > OLD_MS ? "warn" : "" },
    delayed: { value: format.short(last.delayed) },
    dead: { value: format.short(last.dead_letters), level: last.dead_letters ? "warn" : "" },
    stored: { value: format.short(last.messages), note: format.many(Object.keys(data.topics).length, "topic") },
    disk: {
      value: format.bytes(data.free_bytes),
      note: `${format.bytes(used)} used`,
      level: share < FREE_SHARE_LOW || data.free_bytes < FREE_BYTES_LOW ? "warn" : "",
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
      } else if (data.problems.length) {
        draw(JSON.stringify(data.problems), null, data.problems.map(problemLine));
      } else {
        const topics = Object.values(data.topics);
        const groups = topics.reduce((sum, topic) => sum + Object.keys(topic.groups).length, 0);
        const words = `${format.many(topics.length, "topic")}, ${format.many(groups, "group")}, no errors`;
        draw(words, h("p", { class: "well" }, h("span", { class: "dot good", "aria-hidden": "true" }), h("strong", {}, "All is well"), h("span", { class: "quiet-text" }, words)), null);
      }
    },
  };
}

function trouble(title, words) {
  return h("p", { class: "notice bad", role: "alert" }, h("strong", {}, title), h("span", {}, words));
}

function problemLine({ message, topic, partition, priority, group }) {
  const where = [
    topic && h("a", { href: link("topics", topic) }, topic),
    partition !== null && `partition ${partition} (${priority})`,
    group && `group ${group}`,
  ].filter(Boolean).flatMap((part, index) => (index ? [", ", part] : [part]));
  return trouble(where.length ? where : "Broker", message);
}

// Where to look.

function busiestOf(data) {
  return Object.values(data.topics)
    // Dead letters come on their own, and have a page of their own.
    .filter((topic) => !topic.topic.endsWith(".dlq"))
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
      { id: "lag", title: "Lag", kind: "num", sort: "desc", value: (group) => group.pending, cell: (group) => format.count(group.pending) },
      { id: "in_flight", title: "In flight", kind: "num", minor: true, sort: "desc", value: (group) => group.in_flight, cell: (group) => format.count(group.in_flight) },
      { id: "oldest", title: "Oldest", kind: "num", sort: "desc", value: (group) => group.oldest_unacked_ms, cell: (group) => format.duration(group.oldest_unacked_ms) },
      { id: "acked", title: "Acked/s", kind: "num", minor: true, sort: "desc", value: (group) => live.history.groupRates(group.topic, group.group).acked, cell: (group) => format.rate(live.history.groupRates(group.topic, group.group).acked) },
    ],
  });
}
