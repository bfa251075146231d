// Delayed messages: how much is due when, what it is, and calling it off.

import { action } from "../access.js";
import { isGone, path } from "../api.js";
import { bars } from "../bars.js";
import { confirm } from "../dialog.js";
import { drawer, markOpened, openerOf, stepButtons } from "../drawer.js";
import { fill, h, set, setText } from "../dom.js";
import * as format from "../format.js";
import { select } from "../message_form.js";
import { messageView, previewCell, sizeOf, timeText } from "../message_view.js";
import { problem } from "../notice.js";
import { link, remember } from "../site.js";
import { filterField, nodeColumn, table, textColumn } from "../table.js";
import { done, note } from "../toast.js";
import { forEach } from "./messages_reader.js";

const PAGE = 100;
const LARGE_BYTES = 4 * 1024 * 1024;
const BINS = 60;
const REFRESH_MS = 5000;
const CANCELLED_AT_ONCE = 1000;
const HOUR_MS = 3_600_000;
const WINDOWS = [["all", "Up to the last"], [HOUR_MS, "Next hour"], [24 * HOUR_MS, "Next 24 hours"], [7 * 24 * HOUR_MS, "Next 7 days"], [30 * 24 * HOUR_MS, "Next 30 days"]];

export async function render(ctx) {
  if (ctx.params.topic) await new DelayedPage(ctx, ctx.params.topic).show();
  else await showAll(ctx);
}

/** A timeline of some topics together, with a choice of how far it reaches. */
function timeline(ctx, topicsNow, onchoose) {
  const reach = select(WINDOWS, "all", { "aria-label": "How far the timeline reaches" });
  const chart = bars({ title: "Due", onchoose });
  const trouble = h("div", {});
  const element = h("div", { class: "section" }, trouble, chart.element);
  chart.element.querySelector("figcaption").append(reach);

  async function look() {
    const topics = topicsNow();
    try {
      const until = reach.value === "all" ? await lastOf(topics) : Date.now() * 1000 + Number(reach.value) * 1000;
      const found = await forEach(topics, (topic) => ctx.api.get(path("topics", topic, "scheduled", "timeline"), { query: { until, bins: BINS } }));
      draw(found, until);
      fill(trouble);
    } catch (error) {
      if (!isGone(error)) fill(trouble, problem(error, look));
    }
  }

  /** Where the longest of them ends, so that all have the same spans; undefined for a single one, which knows best. */
  async function lastOf(topics) {
    if (topics.length < 2) return undefined;
    const ends = await forEach(topics, async (topic) => (await ctx.api.get(path("topics", topic, "scheduled", "timeline"), { query: { bins: 1 } })).end);
    return Math.max(...ends);
  }

  function draw(found, until) {
    const counts = new Array(BINS).fill(0);
    let later = 0;
    for (const each of found) {
      each.counts.forEach((count, index) => {
        counts[index] += count;
      });
      later += each.later;
    }
    const start = found[0]?.start ?? Date.now() * 1000;
    const end = found[0]?.end ?? until ?? start + HOUR_MS * 1000;
    const shown = counts.reduce((sum, count) => sum + count, 0);
    chart.update({ start, end, counts }, later ? `${format.many(shown, "message")} here, ${format.count(later)} later` : format.many(shown, "message"));
  }

  reach.addEventListener("change", look);
  return { element, look };
}

async function showAll(ctx) {
  let topics = [];
  const list = table({
    caption: "Topics with delayed messages",
    key: ({ topic }) => topic,
    empty: "No delayed messages. Publish one with a delay, and it waits here until it is due.",
    sorted: { id: "delayed", down: true },
    ctx,
    columns: [
      { id: "topic", title: "Topic", value: ({ topic }) => topic, mark: ({ topic }) => topic, cell: ({ topic }) => [h("a", { href: link("delayed", topic) }, topic)] },
      { id: "delayed", title: "Delayed", kind: "num", sort: "desc", value: ({ delayed }) => delayed, cell: ({ delayed }) => format.count(delayed) },
    ],
    onopen: ({ topic }) => ctx.go("delayed", topic),
  });
  const chart = timeline(ctx, () => topics);
  ctx.head(filterField(list, "Filter topics"));
  ctx.add(chart.element, list.element);
  let known = "";
  ctx.onStats(({ topics: all }) => {
    const rows = Object.values(all).filter(({ delayed }) => delayed > 0);
    topics = rows.map(({ topic }) => topic);
    set(chart.element, { hidden: rows.length === 0 });
    list.update(rows);
    if (known !== topics.join()) chart.look();
    known = topics.join();
  });
  ctx.every(REFRESH_MS, () => topics.length && chart.look());
}

class DelayedPage {
  constructor(ctx, topic) {
    Object.assign(this, { ctx, topic, messages: [], isAll: true });
    // Where the list begins: at the next one, or at a moment that was chosen in the timeline.
    this.since = null;
    this.where = path("topics", topic, "scheduled");
    this.chart = timeline(ctx, () => [topic], ({ start }) => this.jump(start));
    this.list = delayedTable((message) => this.open(message), (message) => this.cancel(message), () => this.drawActions());
    this.actions = h("div", { class: "row" });
    this.panel = drawer(ctx.signal, { onclose: () => {
      markOpened(this.list, null);
      remember({ message: null });
    } });
    this.trouble = h("div", {});
    this.status = h("p", { class: "quiet-text", role: "status" });
    this.back = h("button", { type: "button", class: "small", hidden: true, onclick: () => this.jump(null) }, "Back to the next one");
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.load({ isMore: true }) }, "Load more");
  }

  async show() {
    const { ctx, topic } = this;
    ctx.add(
      h("nav", { class: "crumbs", "aria-label": `More about ${topic}` }, h("a", { href: link("delayed") }, "All delayed messages"), h("a", { href: link("topics", topic) }, `Topic ${topic}`), h("a", { href: link("messages", topic) }, "Messages")),
      this.chart.element, this.trouble,
      h("div", { class: "section-head" }, this.status, this.back, this.actions),
      this.list.element, h("div", { class: "pager" }, h("span", {}), this.more),
    );
    ctx.onStats((data) => {
      const count = data.topics[topic]?.delayed ?? 0;
      if (this.count !== undefined && count !== this.count && !this.panel.isOpen && this.messages.length <= PAGE) this.load();
      this.count = count;
      this.drawStatus();
    });
    await Promise.all([this.load(), this.chart.look()]);
    if (ctx.query.message) await ctx.attempt(() => this.openAddressed(ctx.query.message));
    ctx.every(REFRESH_MS, async () => {
      await this.chart.look();
      if (!this.panel.isOpen && this.messages.length <= PAGE) await this.load({ isQuiet: true });
    });
    ctx.every(1000, () => this.list.update(this.messages));
  }

  /** Open the delayed message that the address names. */
  async openAddressed(id) {
    const after = beforeDue(parseInt(id, 16));
    const message = this.messages.find((each) => each.id === id) ?? (await this.ctx.api.get(this.where, { query: { limit: PAGE, after } })).scheduled.find((each) => each.id === id);
    if (message) this.open(message);
    else {
      note("This message does not wait any more: it was delivered or cancelled.");
      remember({ message: null });
    }
  }

  jump(us) {
    this.since = us;
    return this.load();
  }

  /** Behind which id the list begins: an id begins with when it is due, in microseconds. */
  get firstAfter() {
    return this.since === null ? undefined : beforeDue(this.since);
  }

  async load({ isMore = false, isQuiet = false } = {}) {
    if (!isQuiet) set(this.list.element, { "aria-busy": "true" });
    try {
      const after = isMore ? this.messages.at(-1)?.id : this.firstAfter;
      const { scheduled } = await this.ctx.api.get(this.where, { query: { limit: PAGE, after } });
      fill(this.trouble);
      this.messages = isMore ? [...this.messages, ...scheduled] : scheduled;
      // The broker cuts a page short when its messages are large.
      const size = scheduled.reduce((sum, message) => sum + sizeOf(message), 0);
      this.isAll = scheduled.length < PAGE && size < LARGE_BYTES;
      this.list.update(this.messages);
    } catch (error) {
      if (!isGone(error)) fill(this.trouble, problem(error, () => this.load({ isMore })));
    } finally {
      set(this.list.element, { "aria-busy": null });
      set(this.more, { hidden: this.isAll });
      set(this.back, { hidden: this.since === null });
      this.drawStatus();
    }
  }

  drawStatus() {
    const shown = this.messages.length;
    const of = this.count !== undefined && this.count > shown ? ` of ${format.count(this.count)}` : "";
    const since = this.since === null ? "the next one first" : `from ${format.time(this.since)} on`;
    setText(this.status, shown ? `${format.count(shown)}${of} delayed, ${since}` : "");
  }

  open(message) {
    markOpened(this.list, message.id);
    remember({ message: message.id });
    const index = this.messages.findIndex(({ id }) => id === message.id);
    this.panel.open({
      title: `Due ${format.ago(message.deliver_at)}`,
      buttons: stepButtons("message", this.messages, index, (other) => this.open(other)),
      opener: () => openerOf(this.list, message.id),
      content: [
        h("div", { class: "row" },
          action("Deliver now", "write", () => this.deliver([message.id]), { class: "small" }),
          action("Cancel this message", "write", () => this.cancel(message), { class: "small danger" })),
        ...messageView(message, { topic: this.topic, address: `${link("delayed", this.topic)}?${new URLSearchParams({ message: message.id })}`, facts: [["Due", timeText(message.deliver_at)], ["Partition", String(message.partition)], ["Priority", message.priority], ["Id", message.id]] }),
      ],
    });
  }

  async cancel(message) {
    const isSure = await confirm({ title: "Cancel a delayed message", text: `It was to be delivered at ${format.time(message.deliver_at)}. Nobody will get it.`, action: "Cancel the message", otherwise: "Keep it", danger: true });
    if (!isSure) return;
    await this.ctx.attempt(async () => {
      try {
        await this.ctx.api.delete(path("topics", this.topic, "scheduled", message.id));
        done("Cancelled.");
      } catch (error) {
        if (error.status !== 404) throw error;
        note("It does not wait any more: it was delivered, or somebody else cancelled it.");
      }
    });
    await this.lookAgain();
  }

  async lookAgain() {
    this.panel.close();
    this.list.clearSelection();
    await Promise.all([this.load(), this.chart.look()]);
  }

  /** What can be done with all that are selected. */
  drawActions() {
    const { selected } = this.list;
    const hadFocus = this.actions.contains(document.activeElement);
    fill(this.actions, selected.length ? [
      action(`Deliver ${format.count(selected.length)} now`, "write", () => this.deliver(selected)),
      action(`Cancel ${format.count(selected.length)} selected`, "write", () => this.cancelMany(selected), { class: "danger" }),
    ] : null);
    if (hadFocus) this.actions.querySelector("button")?.focus();
  }

  async cancelMany(ids) {
    const isSure = await confirm({ title: "Cancel delayed messages", text: `Nobody will get ${ids.length === 1 ? "this message" : `these ${format.count(ids.length)} messages`}.`, action: `Cancel ${format.many(ids.length, "message")}`, otherwise: ids.length === 1 ? "Keep it" : "Keep them", danger: true });
    if (!isSure) return;
    let count = 0;
    await this.ctx.attempt(async () => {
      for (let start = 0; start < ids.length; start += CANCELLED_AT_ONCE) {
        count += (await this.ctx.api.post(`${this.where}/cancel`, { body: { ids: ids.slice(start, start + CANCELLED_AT_ONCE) } })).cancelled;
      }
    });
    const gone = ids.length - count;
    if (count) done(`Cancelled ${format.many(count, "message")}${gone ? `; ${format.count(gone)} did not wait any more` : ""}.`);
    else note("None of them waits any more: they were delivered, or somebody else cancelled them.");
    await this.lookAgain();
  }

  /** Let some come before they are due. */
  async deliver(ids) {
    let count = 0;
    await this.ctx.attempt(() => forEach(ids, async (id) => {
      try {
        await this.ctx.api.post(path("topics", this.topic, "scheduled", id, "deliver"));
        count += 1;
      } catch (error) {
        // It came by itself, or somebody cancelled it.
        if (error.status !== 404) throw error;
      }
    }));
    if (count) done(`${format.many(count, "message")} can be received now.`);
    else note("It does not wait any more: it was delivered, or somebody else cancelled it.");
    await this.lookAgain();
  }
}

/** An id that is behind all that are due before a moment, in unix microseconds. */
function beforeDue(us) {
  return `${Math.max(0, Math.floor(us) - 1).toString(16)}-0-0`;
}

function delayedTable(onopen, oncancel, onselect) {
  return table({
    caption: "Delayed messages",
    key: ({ id }) => id,
    empty: "No delayed messages here.",
    sorted: { id: "due" },
    select: true,
    onselect,
    onopen,
    limit: 2000,
    columns: [
      nodeColumn("due", "Due", (message) => [h("button", { type: "button", class: "linklike", onclick: () => onopen(message) }, format.time(message.deliver_at).slice(0, 19))], "tight moment"),
      textColumn("left", "Left", ({ deliver_at: due }) => format.ago(due), "tight"),
      textColumn("partition", "Partition", ({ partition }) => String(partition), "num minor"),
      textColumn("priority", "Priority", ({ priority }) => priority, "tight minor"),
      nodeColumn("key", "Key", (message) => previewCell(message, "key")),
      nodeColumn("value", "Value", (message) => previewCell(message, "value"), "wide"),
      nodeColumn("cancel", "Action", (message) => [action("Cancel", "write", () => oncancel(message), { class: "small", "aria-label": `Cancel the message due ${format.time(message.deliver_at)}` })], "tight act"),
    ],
  });
}
