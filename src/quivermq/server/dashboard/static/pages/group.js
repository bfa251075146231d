// One group in one topic: how far it has come in each partition, who its members are, what they have in hand.

import { action } from "../access.js";
import { isGone, path } from "../api.js";
import { confirm, confirmTyped } from "../dialog.js";
import { fill, h, set, setText } from "../dom.js";
import * as format from "../format.js";
import { live } from "../live.js";
import { problem } from "../notice.js";
import { joined, past } from "../past.js";
import { plot } from "../plot.js";
import { link } from "../site.js";
import { stateLevel, stateText } from "../states.js";
import { table } from "../table.js";
import { tiles } from "../tiles.js";
import { done, note } from "../toast.js";
import { seekDialog } from "./groups_seek.js";

const REFRESH_MS = 2000;
const TICK_MS = 1000;
const DELIVERIES_MAX = 500;
const LANES = ["high", "normal", "low"];

export async function render(ctx) {
  const { topic, group } = ctx.params;
  const page = new GroupPage(ctx, topic, group);
  await page.show();
}

class GroupPage {
  constructor(ctx, topic, group) {
    Object.assign(this, { ctx, topic, group });
    this.where = path("topics", topic, "groups", group);
    this.trouble = h("div", {});
    this.figures = tiles([
      { id: "state", label: "State" },
      { id: "lag", label: "Lag", hint: "Messages that nobody in the group has had" },
      { id: "in_flight", label: "In flight" },
      { id: "retrying", label: "Retrying", hint: "Failed, and due again later" },
      { id: "waiting_for_key", label: "Waiting for key", hint: "Earlier messages of their key are not finished" },
      { id: "oldest", label: "Oldest unacked" },
      { id: "delivered", label: "Delivered/s" },
      { id: "acked", label: "Acked/s" },
      { id: "dead", label: "Dead letters", href: link("dead-letters", topic) },
    ]);
    this.rates = plot({
      title: "Messages", unit: "a second", signal: ctx.signal,
      series: [{ id: "delivered", title: "delivered", color: 2 }, { id: "acked", title: "acked", color: 3, dashed: true }],
    });
    this.waiting = plot({
      title: "Lag", unit: "messages", format: format.short, signal: ctx.signal,
      series: [{ id: "lag", title: "lag", color: 6 }, { id: "in_flight", title: "in flight", color: 3 }],
    });
    this.lanes = laneTable(topic);
    this.members = memberTable();
    this.membersNote = h("p", { class: "quiet-text" });
    this.held = heldTable(topic, () => this.now());
    this.heldNote = h("p", { class: "quiet-text" });
    this.shown = null;
    this.pausing = action("Pause", "consume", () => this.pauseOrResume());
    // How far the clock of the broker is ahead of ours.
    this.ahead_ms = 0;
  }

  now() {
    return (Date.now() + this.ahead_ms) * 1000;
  }

  async show() {
    const { ctx, topic, group } = this;
    ctx.head(
      this.pausing,
      action("Retry now", "consume", () => this.retry(), { title: "Let everything that failed and waits have its next attempt now" }),
      action("Seek", "consume", () => this.seek()),
      action("Delete", "admin", () => this.remove(), { class: "danger" }),
    );
    ctx.add(
      h("nav", { class: "crumbs", "aria-label": `More about ${group}` }, h("a", { href: link("topics", topic) }, `Topic ${topic}`), h("a", { href: link("messages", topic) }, "Messages"), h("a", { href: link("dead-letters", topic) }, "Dead letters")),
      this.trouble, this.figures.element,
      h("div", { class: "columns" }, this.waiting.element, this.rates.element),
      section("Partitions", null, this.lanes.element),
      section("In flight and retrying", this.heldNote, this.held.element),
      section("Members", this.membersNote, this.members.element),
    );
    this.before = past(ctx, { topic, group }, () => this.drawPlots());
    ctx.onStats((data) => {
      this.ahead_ms = data.time / 1000 - Date.now();
      this.drawFigures(data);
      this.drawPlots();
    });
    await this.refresh();
    ctx.every(REFRESH_MS, () => this.refresh());
    ctx.every(TICK_MS, () => this.held.tick());
  }

  drawPlots() {
    const points = joined(this.before.points, live.history.groupPoints(this.topic, this.group));
    const end = points.at(-1)?.t;
    if (end === undefined) return;
    this.waiting.update(points, end);
    this.rates.update(points, end);
  }

  async refresh() {
    const { api } = this.ctx;
    try {
      const [shown, held, members] = await Promise.all([
        api.get(this.where),
        api.get(`${this.where}/deliveries`, { query: { limit: DELIVERIES_MAX } }),
        api.get(path("groups", this.group)),
      ]);
      fill(this.trouble);
      this.shown = shown;
      this.draw(shown, held.deliveries, members);
    } catch (error) {
      if (isGone(error)) return;
      fill(this.trouble, problem(error, () => this.refresh()));
    }
  }

  draw(shown, deliveries, members) {
    const owners = new Map();
    for (const { member, partitions } of shown.members) for (const partition of partitions) owners.set(partition, member);
    this.lanes.update(shown.partitions.map((lane) => ({ ...lane, owner: owners.get(lane.partition) ?? "" })));
    this.held.update(deliveries);
    const total = shown.in_flight + shown.retrying + shown.waiting_for_key;
    setText(this.heldNote, total > deliveries.length ? `The first ${format.count(deliveries.length)} of ${format.count(total)}.` : "");
    this.members.update(members.members.map((member) => ({ ...member, here: member.partitions.filter(({ topic }) => topic === this.topic).map(({ partition }) => partition) })));
    setText(this.membersNote, members.members.length
      ? `${members.state === "rebalancing" ? "Rebalancing" : "Stable"}, ${members.strategy} assignment, generation ${members.generation}.`
      : "No members: this group is used in queue mode, where whoever receives gets the next message.");
    set(this.members.element, { hidden: members.members.length === 0 });
    this.drawFigures(live.latest);
  }

  drawFigures(data) {
    setText(this.pausing, this.isPaused ? "Resume" : "Pause");
    const figures = data?.topics[this.topic]?.groups[this.group] || this.shown;
    if (!figures) return;
    const rates = live.history.groupRates(this.topic, this.group) || {};
    this.figures.update({
      state: { value: stateText(figures.state), level: stateLevel(figures.state) },
      lag: { value: format.count(figures.pending), note: data ? `of ${format.many(data.topics[this.topic]?.messages ?? 0, "message")}` : "" },
      in_flight: { value: format.count(figures.in_flight), note: "somebody has them" },
      retrying: { value: format.count(figures.retrying), note: "due again later" },
      waiting_for_key: { value: format.count(figures.waiting_for_key), note: "for earlier ones" },
      oldest: { value: figures.oldest_unacked_ms ? format.duration(figures.oldest_unacked_ms) : format.none },
      delivered: { value: format.rate(rates.delivered) },
      acked: { value: format.rate(rates.acked) },
      dead: { value: format.count(figures.dead_letters), level: figures.dead_letters ? "warn" : "" },
    });
  }

  get isPaused() {
    return (live.latest?.topics[this.topic]?.groups[this.group] ?? this.shown)?.state === "paused";
  }

  async pauseOrResume() {
    const { ctx, topic, group, isPaused } = this;
    const isSure = isPaused || (await confirm({
      title: `Pause ${group}`,
      text: [`${group} is given nothing more of ${topic} until somebody resumes it, also after a restart of the broker.`, "What it has in hand it may still finish."],
      action: "Pause the group", otherwise: "Let it go on",
    }));
    if (!isSure) return;
    await ctx.attempt(async () => {
      await ctx.api.post(`${this.where}/${isPaused ? "resume" : "pause"}`);
      done(isPaused ? `${group} goes on.` : `${group} is paused.`);
    });
    this.refresh();
  }

  async retry() {
    await this.ctx.attempt(async () => {
      const { retried } = await this.ctx.api.post(`${this.where}/retry`);
      if (retried) done(`${format.many(retried, "message")} ${retried === 1 ? "has its" : "have their"} next attempt now.`);
      else note("Nothing waits for another attempt.");
    });
    this.refresh();
  }

  async seek() {
    const shown = await this.ctx.attempt(() => this.ctx.api.get(this.where));
    if (!shown) return;
    const moved = await seekDialog(this.ctx, this.topic, this.group, shown);
    if (!moved) return;
    done(`${this.group} goes on from elsewhere.`);
    this.refresh();
  }

  async remove() {
    const { ctx, topic, group } = this;
    const isSure = await confirmTyped({
      title: `Delete ${group}`,
      text: [`What ${group} knows of ${topic} is forgotten: how far it has come, and what it has in hand. When it comes back it begins with the earliest message.`, "The messages stay."],
      word: group,
      action: "Delete the group",
    });
    if (!isSure) return;
    const isDone = await ctx.attempt(async () => {
      await ctx.api.delete(this.where);
      return true;
    });
    if (isDone) {
      done(`Deleted ${group} of ${topic}.`);
      ctx.go("groups");
    }
  }
}

function section(title, note, ...content) {
  return h("section", { class: "section" }, h("div", { class: "section-head" }, h("h2", {}, title), note), content);
}

const number = (id, title, value, hint) => ({ id, title, hint, kind: "num", sort: "desc", value, cell: (row) => format.count(value(row)) });

function laneTable(topic) {
  const place = (lane, offset) => `${link("messages", topic)}?${new URLSearchParams({ partition: lane.partition, priority: lane.priority, offset })}`;
  return table({
    caption: "Partitions",
    key: ({ partition, priority }) => `${partition} ${priority}`,
    empty: "No messages yet.",
    sorted: { id: "partition", down: false },
    columns: [
      { id: "partition", title: "Partition", kind: "num tight", value: ({ partition, priority }) => partition * 3 + LANES.indexOf(priority), cell: ({ partition }) => String(partition) },
      { id: "priority", title: "Priority", kind: "tight", value: ({ priority }) => LANES.indexOf(priority), cell: ({ priority }) => priority },
      {
        id: "position", title: "Next", kind: "num", hint: "The offset of the message that the group gets next", value: ({ position }) => position,
        mark: ({ position }) => String(position), cell: (lane) => [lane.position < lane.end ? h("a", { href: place(lane, lane.position) }, format.count(lane.position)) : format.count(lane.position)],
      },
      { ...number("end", "End", ({ end }) => end, "The offset that the next message will get"), kind: "num" },
      number("lag", "Lag", ({ lag }) => lag),
      {
        id: "share", title: "Progress", kind: "tight minor", sort: false, value: () => "", mark: ({ position, start, end }) => `${position} ${start} ${end}`,
        cell: ({ position, start, end, partition, priority }) => [progress(end > start ? (position - start) / (end - start) : 1, `Partition ${partition}, ${priority}`)],
      },
      number("in_flight", "In flight", ({ in_flight: held }) => held),
      number("retrying", "Retrying", ({ retrying }) => retrying),
      { id: "owner", title: "Member", kind: "text", value: ({ owner }) => owner, cell: ({ owner }) => owner },
    ],
  });
}

function progress(share, label) {
  const percent = Math.round(Math.min(1, Math.max(0, share)) * 100);
  return h("div", { class: "progress", role: "meter", "aria-valuenow": percent, "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": `${label}: ${percent} % had` }, h("span", { style: { width: `${percent}%` } }));
}

function memberTable() {
  return table({
    caption: "Members",
    key: ({ member }) => member,
    sorted: { id: "member", down: false },
    columns: [
      { id: "member", title: "Member", value: ({ member }) => member, cell: ({ member }) => member },
      { id: "client", title: "Address", value: ({ client }) => client },
      { id: "topics", title: "Reads", value: ({ topics }) => topics.join(", ") },
      { id: "partitions", title: "Partitions here", value: ({ here }) => here.join(", "), cell: ({ here }) => here.join(", ") || format.none },
      { id: "all", title: "Partitions in all", kind: "num", value: ({ partitions }) => partitions.length },
      { id: "silent", title: "Last heard of", kind: "num", value: ({ silent_ms: silent }) => silent, cell: ({ silent_ms: silent }) => `${format.duration(silent)} ago` },
    ],
  });
}

/** What somebody has, or what waits for another attempt; its times count down between two looks. */
function heldTable(topic, now) {
  const key = ({ partition, priority, offset }) => `${partition} ${priority} ${offset}`;
  const list = table({
    caption: "Messages in flight, and those that wait for another attempt",
    key,
    empty: "Nobody has a message in hand.",
    sorted: { id: "left", down: false },
    limit: 200,
    columns: [
      {
        id: "offset", title: "Offset", kind: "num tight", value: ({ offset }) => offset, mark: key,
        cell: ({ partition, priority, offset }) => [h("a", { href: `${link("messages", topic)}?${new URLSearchParams({ partition, priority, offset })}` }, format.count(offset))],
      },
      { id: "partition", title: "Partition", kind: "num tight", value: ({ partition }) => partition, cell: ({ partition }) => String(partition) },
      { id: "priority", title: "Priority", kind: "tight", value: ({ priority }) => priority },
      {
        id: "state", title: "State", kind: "tight", value: ({ state }) => state, mark: ({ state, attempt }) => `${state} ${attempt}`,
        cell: ({ state, attempt }) => [state === "in_flight" ? h("span", { class: "tag good" }, "in flight") : h("span", { class: "tag warn" }, { retrying: "retrying", waiting_for_key: "waits for its key", released: "released" }[state])],
      },
      { id: "attempt", title: "Attempt", kind: "num tight", sort: "desc", value: ({ attempt }) => attempt, cell: ({ attempt }) => String(attempt || format.none) },
      { id: "left", title: "Time left", kind: "num tight left", hint: "Until the lease ends, or until it is tried again", value: ({ time }) => time, cell: ({ time }) => left(time, now()) },
      { id: "first", title: "First delivered", kind: "num", hint: "When the group was first given it", value: ({ first_delivered_at: us }) => us ?? 0, cell: ({ first_delivered_at: us }) => ago(us, now()) },
      { id: "last", title: "Last delivered", kind: "num", hint: "When it was given to whoever has it, or had it last", value: ({ last_delivered_at: us }) => us ?? 0, cell: ({ last_delivered_at: us }) => ago(us, now()) },
      { id: "owner", title: "Owner", hint: "Who received it: its program, its address, its key", value: ({ owner }) => owner ?? "", cell: ({ owner, state }) => owner ?? (state === "in_flight" ? "unknown" : "") },
    ],
  });
  return { ...list, tick: () => list.update(list.rows) };
}

function ago(us, nowUs) {
  return us ? `${format.duration(Math.max(0, nowUs - us) / 1000)} ago` : format.none;
}

function left(us, nowUs) {
  if (!us) return format.none;
  const ms = (us - nowUs) / 1000;
  return ms <= 0 ? "now" : format.duration(ms < 10_000 ? Math.ceil(ms / 1000) * 1000 : ms);
}
