// Dead letters: why messages were given up, looking at them, mending them, sending them back, taking them out.

import { action } from "../access.js";
import { isGone, path } from "../api.js";
import { visible } from "../content.js";
import { confirm, confirmTyped } from "../dialog.js";
import { drawer, markOpened, openerOf, stepButtons } from "../drawer.js";
import { fill, h, set, setText } from "../dom.js";
import * as format from "../format.js";
import { messageView, previewCell, rawText, timeText } from "../message_view.js";
import { problem } from "../notice.js";
import { link, remember } from "../site.js";
import { nodeColumn, table, textColumn } from "../table.js";
import { done, note } from "../toast.js";
import { linkTo, markOf, showAll } from "./dead_letters_all.js";
import { countReasons, discardAll, gravesOf, originOf, redriveAll } from "./dead_letters_calls.js";
import { editDialog } from "./dead_letters_edit.js";

const PAGE = 100;

export async function render(ctx) {
  if (ctx.params.topic) await new DeadLettersPage(ctx, originOf(ctx.params.topic)).show();
  else await showAll(ctx);
}

class DeadLettersPage {
  constructor(ctx, topic) {
    Object.assign(this, { ctx, topic, letters: [], next: null, reasons: [] });
    // Only those of one reason, given up by one group; undefined for all.
    this.chosen = { reason: ctx.query.reason, group: ctx.query.group };
    this.where = path("topics", gravesOf(topic), "dead-letters");
    this.list = letterTable((letter) => this.open(letter), () => this.drawActions());
    this.panel = drawer(ctx.signal, { onclose: () => {
      markOpened(this.list, null);
      remember({ letter: null });
    } });
    this.trouble = h("div", {});
    this.summary = h("div", { class: "reasons", role: "group", "aria-label": "Reasons" });
    this.actions = h("div", { class: "row" });
    this.status = h("p", { class: "quiet-text", role: "status" });
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.load({ isMore: true }) }, "Load more");
  }

  async show() {
    const { ctx, topic } = this;
    ctx.add(
      h("nav", { class: "crumbs", "aria-label": `More about ${topic}` }, h("a", { href: link("dead-letters") }, "All dead letters"), h("a", { href: link("topics", topic) }, `Topic ${topic}`), h("a", { href: link("messages", gravesOf(topic)) }, "As a log")),
      this.trouble, this.summary,
      h("div", { class: "section-head" }, this.status, this.actions),
      this.list.element, h("div", { class: "pager" }, h("span", {}), this.more),
    );
    let known = null;
    ctx.onStats((data) => {
      const mark = markOf(data, topic);
      if (mark === known || this.isBusy) return;
      // Others may send them back, too: then what is shown is out of date. But not under somebody's hands.
      if (known !== null && !this.panel.isOpen && !this.list.selected.length) this.refresh();
      known = mark;
    });
    await this.refresh();
    if (ctx.query.letter) await ctx.attempt(() => this.openAddressed(ctx.query.letter));
  }

  /** Open the dead letter that the address names. */
  async openAddressed(id) {
    const before = placeBefore(id);
    const query = new URLSearchParams({ limit: 1, ...(before ? { after: before } : {}) });
    const letter = this.letters.find((each) => each.id === id) ?? (await this.ctx.api.get(`${this.where}?${query}`).catch(emptyWithoutTopic)).messages[0];
    if (letter?.id === id) this.open(letter);
    else {
      note("This dead letter is not there any more: it was sent back or purged.");
      remember({ letter: null });
    }
  }

  async refresh() {
    await Promise.all([this.load(), this.countAgain()]);
  }

  async load({ isMore = false } = {}) {
    this.isBusy = true;
    set(this.list.element, { "aria-busy": "true" });
    try {
      const query = { limit: PAGE, after: isMore ? this.next : undefined };
      const page = await this.page(query);
      fill(this.trouble);
      this.letters = isMore ? [...this.letters, ...page.messages] : page.messages;
      this.next = page.next;
      this.isKnown = true;
      this.list.update(this.letters);
    } catch (error) {
      if (!isGone(error)) fill(this.trouble, problem(error, () => this.load({ isMore })));
    } finally {
      this.isBusy = false;
      set(this.list.element, { "aria-busy": null });
      this.draw();
    }
  }

  /** One page of letters; the broker may need several calls to find some of a rare reason. */
  async page({ limit, after }) {
    const messages = [];
    let next = after;
    do {
      const page = await this.ctx.api.get(`${this.where}?${this.queryFor(limit - messages.length, next)}`).catch(emptyWithoutTopic);
      messages.push(...page.messages);
      next = page.next;
    } while (next !== null && messages.length < limit);
    return { messages, next };
  }

  queryFor(limit, after) {
    // Not as a `query`, which leaves out what is empty: no reason is a reason, too.
    const query = new URLSearchParams({ limit });
    if (after) query.set("after", after);
    for (const [name, value] of Object.entries(this.chosen)) if (value !== undefined) query.set(name, value);
    return query;
  }

  async countAgain() {
    try {
      this.reasons = await countReasons(this.ctx.api, this.topic);
    } catch (error) {
      if (!isGone(error)) fill(this.trouble, problem(error, () => this.countAgain()));
    }
    this.draw();
  }

  get isChosen() {
    return this.chosen.reason !== undefined;
  }

  /** How many are meant: all of the topic, or all of the reason that was chosen. */
  get meant() {
    const { reason, group } = this.chosen;
    return this.reasons
      .filter((each) => !this.isChosen || (each.reason === reason && (group === undefined || each.group === group)))
      .reduce((sum, { messages }) => sum + messages, 0);
  }

  draw() {
    const total = this.reasons.reduce((sum, { messages }) => sum + messages, 0);
    const chip = (words, count, href, isCurrent) => h("a", { class: "chip", href, "aria-current": isCurrent ? "true" : null }, h("span", { class: "chip-name" }, words), h("span", { class: "chip-count" }, format.count(count)));
    fill(
      this.summary,
      chip("All", total, link("dead-letters", this.topic), !this.isChosen),
      this.reasons.map((each) => chip(
        [visible(each.reason) || "(no reason given)", this.hasManyGroups ? h("span", { class: "quiet-text" }, ` · ${each.group || "by hand"}`) : null],
        each.messages, linkTo(this.topic, each), this.isChosen && each.reason === this.chosen.reason && each.group === this.chosen.group,
      )),
    );
    set(this.summary, { hidden: total === 0 });
    set(this.more, { hidden: this.next === null });
    const shown = this.letters.length;
    if (!this.isKnown) return;
    setText(this.status, this.meant > shown ? `${format.count(shown)} of ${format.many(this.meant, "dead letter")}, oldest first` : format.many(shown, "dead letter"));
    this.drawActions();
  }

  get hasManyGroups() {
    return new Set(this.reasons.map(({ group }) => group)).size > 1;
  }

  drawActions() {
    const selected = this.list.selected;
    const what = this.isChosen ? "all of this reason" : "all";
    // The button that was pressed may be the one that is drawn anew.
    const hadFocus = this.actions.contains(document.activeElement);
    fill(
      this.actions,
      selected.length
        ? [action(`Redrive ${format.count(selected.length)} selected`, "write", () => this.redrive(selected)), action("Purge selected", "admin", () => this.purge(selected), { class: "danger" })]
        : this.meant
          ? [action(`Redrive ${what}`, "write", () => this.redrive(null)), action(`Purge ${what}`, "admin", () => this.purge(null), { class: "danger" })]
          : null,
    );
    if (hadFocus) this.actions.querySelector("button")?.focus();
  }

  /** What a call is about: these ids, or everything that is meant. */
  filterFor(ids) {
    if (ids) return { ids };
    return this.isChosen ? { reason: this.chosen.reason, ...(this.chosen.group === undefined ? {} : { group: this.chosen.group }) } : {};
  }

  async redrive(ids) {
    const count = ids ? ids.length : this.meant;
    const isSure = await confirm({
      title: "Redrive",
      text: [`Send ${format.many(count, "dead letter")} back to where they came from?`, "They become new messages there, and every group of the topic gets them, not only the one that gave them up."],
      action: `Redrive ${format.count(count)}`,
    });
    if (isSure) await this.change(redriveAll, ids, count, "Redriven");
  }

  async purge(ids) {
    const count = ids ? ids.length : this.meant;
    const isSure = await confirmTyped({
      title: "Purge",
      text: `${format.many(count, "dead letter")} will be gone for good. Nobody can bring them back.`,
      word: this.topic,
      action: `Purge ${format.count(count)}`,
    });
    if (isSure) await this.change(discardAll, ids, count, "Purged");
  }

  /** Do something with dead letters, say how many it were, and look again. */
  async change(act, ids, count, word) {
    this.isBusy = true;
    for (const button of this.actions.querySelectorAll("button")) button.disabled = true;
    const told = (changed) => setText(this.status, `${word} ${format.count(changed)} of ${format.count(count)}…`);
    const changed = await this.ctx.attempt(() => act(this.ctx.api, this.topic, this.filterFor(ids), count, told));
    this.isBusy = false;
    if (changed === 0) note("Nothing moved: others were faster, or what they came from is gone.");
    else if (changed) done(`${word} ${format.many(changed, "dead letter")}.`);
    this.panel.close();
    this.list.clearSelection();
    await this.refresh();
  }

  open(letter) {
    markOpened(this.list, letter.id);
    remember({ letter: letter.id });
    const index = this.letters.findIndex(({ id }) => id === letter.id);
    const { origin } = letter;
    this.panel.open({
      title: visible(letter.reason) || "(no reason given)",
      buttons: stepButtons("dead letter", this.letters, index, (other) => this.open(other)),
      opener: () => openerOf(this.list, letter.id),
      content: [
        h("div", { class: "row" },
          action("Redrive", "write", () => this.redrive([letter.id]), { class: "small primary" }),
          action("Edit and redrive", "write", () => this.edit(letter), { class: "small" }),
          action("Purge", "admin", () => this.purge([letter.id]), { class: "small danger" })),
        letter.error ? h("section", { class: "section" }, h("h3", {}, "Error"), rawText(letter.error, "Error")) : null,
        ...messageView(letter, {
          topic: origin.topic,
          address: `${link("dead-letters", this.topic)}?${new URLSearchParams({ letter: letter.id })}`,
          facts: [
            ["Given up", timeText(letter.died_at)], ["By group", letter.group || null], ["Attempts", letter.attempts ? String(letter.attempts) : null],
            ["Came from", `${origin.topic}, partition ${origin.partition}, ${origin.priority}, offset ${format.count(origin.offset)}`],
          ],
        }),
      ],
    });
  }

  async edit(letter) {
    const moved = await editDialog(this.ctx, this.topic, letter);
    if (moved === undefined) return;
    if (moved) done("The edited message went back.");
    else note("It was not there any more: somebody else was faster.");
    this.panel.close();
    await this.refresh();
  }
}

/** The place right before PARTITION-LANE-OFFSET; null before the first of all. */
function placeBefore(id) {
  const [partition, lane, offset] = id.split("-").map(Number);
  if (offset > 0) return `${partition}-${lane}-${offset - 1}`;
  if (lane > 0) return `${partition}-${lane - 1}-${Number.MAX_SAFE_INTEGER}`;
  return partition > 0 ? `${partition - 1}-2-${Number.MAX_SAFE_INTEGER}` : null;
}

/** A topic without dead letters may have no topic for them yet. */
function emptyWithoutTopic(error) {
  if (error.code !== "topic_not_found") throw error;
  return { messages: [], next: null };
}

function letterTable(onopen, onselect) {
  const list = table({
    caption: "Dead letters",
    key: ({ id }) => id,
    empty: "No dead letters here.",
    sorted: { id: "reason" },
    select: true,
    onselect,
    onopen,
    limit: 2000,
    columns: [
      nodeColumn("reason", "Reason", (letter) => [h("button", { type: "button", class: "linklike", onclick: () => onopen(letter) }, h("span", { class: "preview reason" }, visible(letter.reason) || "(no reason given)"))], "text lead"),
      textColumn("died", "Given up", ({ died_at: died }) => format.time(died), "tight moment"),
      textColumn("group", "Group", ({ group }) => group, "tight"),
      textColumn("attempts", "Attempts", ({ attempts }) => String(attempts), "num"),
      nodeColumn("key", "Key", (letter) => previewCell(letter, "key")),
      nodeColumn("value", "Value", (letter) => previewCell(letter, "value"), "wide"),
      nodeColumn("error", "Error", ({ error }) => h("span", { class: "preview mono" }, lastLine(error)), "wide"),
    ],
  });
  list.element.classList.add("letters");
  return list;
}

/** The line of a trace that says the most. */
function lastLine(error) {
  return visible(error.trim().split("\n").at(-1).slice(0, 200));
}
