// Messages of a topic: looking at the log without touching it, finding, following, and publishing one.

import { action } from "../access.js";
import { isGone } from "../api.js";
import { drawer, markOpened, openerOf, stepButtons } from "../drawer.js";
import { fill, h, set, setText } from "../dom.js";
import * as format from "../format.js";
import { live } from "../live.js";
import { messageView } from "../message_view.js";
import { problem } from "../notice.js";
import { link, linkToMessage } from "../site.js";
import { filterField, magnitude, table } from "../table.js";
import { lanesOf, LogReader, LogTail, readLane } from "./messages_reader.js";
import { lanesBetween, LogSearch } from "./messages_search.js";
import { messageTable, placeOf, ROWS_MAX } from "./messages_table.js";
import { showAddress, toolbar } from "./messages_toolbar.js";
import { publishDialog } from "./publish.js";

const TAIL_MS = 1000;

export async function render(ctx) {
  if (!ctx.params.topic) {
    chooseTopic(ctx);
    return;
  }
  const { topic } = ctx.params;
  const place = h("div", {});
  ctx.add(place);
  await ctx.load(place, async () => {
    const { partitions } = await lanesOf(ctx.api, topic);
    const page = new MessagesPage(ctx, topic, partitions);
    page.show();
    await page.openAddressed();
    return null;
  });
}

/** Without a topic: which one. */
function chooseTopic(ctx) {
  const list = table({
    caption: "Topics",
    key: ({ topic }) => topic,
    empty: "No topics yet.",
    activity: ({ topic, messages }) => [magnitude(live.history.topicRates(topic).published), magnitude(messages)],
    ctx,
    columns: [
      { id: "topic", title: "Topic", value: ({ topic }) => topic, mark: ({ topic }) => topic, cell: ({ topic }) => [h("a", { href: link("messages", topic) }, topic)] },
      { id: "messages", title: "Messages", kind: "num", sort: "desc", value: ({ messages }) => messages, cell: ({ messages }) => format.count(messages) },
      { id: "bytes", title: "Size", kind: "num", sort: "desc", value: ({ bytes }) => bytes, cell: ({ bytes }) => format.bytes(bytes) },
    ],
    onopen: ({ topic }) => ctx.go("messages", topic),
  });
  ctx.head(filterField(list, "Filter topics"));
  ctx.add(h("p", { class: "quiet-text" }, "Choose a topic to look at its messages. Looking consumes nothing."), list.element);
  ctx.onStats(({ topics }) => list.update(Object.values(topics)));
}

class MessagesPage {
  constructor(ctx, topic, partitions) {
    this.ctx = ctx;
    this.topic = topic;
    this.partitions = partitions;
    this.reader = null;
    this.search = null;
    this.tail = null;
    // Whoever began the last work: what an earlier one finds is not shown any more.
    this.turn = 0;
    this.rows = [];
    this.bar = toolbar(ctx, { topic, partitions }, () => this.go());
    this.list = messageTable((message) => this.open(message));
    this.panel = drawer(ctx.signal, { onclose: () => this.closed() });
    this.trouble = h("div", {});
    this.missing = h("div", {});
    this.status = h("p", { class: "quiet-text", role: "status" });
    this.older = h("button", { type: "button", onclick: () => this.turnPage("older") }, "Older");
    this.newer = h("button", { type: "button", onclick: () => this.turnPage("newer") }, "Newer");
    this.stop = h("button", { type: "button", onclick: () => this.stopSearch() }, "Stop");
    this.more = h("button", { type: "button", onclick: () => this.findMore() }, "Find more");
    this.follow = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggleTail() }, "Live tail");
  }

  show() {
    const { ctx } = this;
    ctx.head(this.follow, action("Publish", "write", () => this.publish(), { class: "primary" }));
    ctx.add(
      crumbs(this.topic), this.bar.element, this.missing, this.trouble, this.list.element,
      h("div", { class: "pager" }, this.status, h("div", { class: "row" }, this.stop, this.more, this.newer, this.older)),
    );
    ctx.every(TAIL_MS, () => this.lookForMore());
    this.go();
  }

  /** Show what the toolbar asks for. */
  async go() {
    this.endTail();
    let asked;
    try {
      asked = this.bar.read();
    } catch (error) {
      fill(this.trouble, problem(error));
      return;
    }
    this.asked = asked;
    this.tellAddress();
    if (asked.mode === "find") await this.work((turn) => this.find(asked, turn));
    else await this.work((turn) => this.read(asked, turn));
  }

  /** Do something that takes a while: what goes wrong is said, and may be tried again. */
  async work(act) {
    this.turn += 1;
    const turn = this.turn;
    fill(this.trouble);
    set(this.list.element, { "aria-busy": "true" });
    this.isBusy = true;
    this.drawPager();
    try {
      await act(turn);
    } catch (error) {
      if (!isGone(error) && turn === this.turn) fill(this.trouble, problem(error, () => this.work(act)));
    } finally {
      if (turn === this.turn) {
        this.isBusy = false;
        set(this.list.element, { "aria-busy": null });
        this.drawPager();
      }
    }
  }

  async read(asked, turn) {
    this.search = null;
    const { lanes } = await lanesOf(this.ctx.api, this.topic, asked);
    const reader = new LogReader(this.ctx.api, this.topic, lanes);
    if (asked.mode === "newest") await reader.newest();
    else if (asked.mode === "offset") await reader.from(asked.offset);
    else await reader.since(asked.timestamp);
    if (turn !== this.turn) return;
    this.reader = reader;
    this.isDown = asked.mode === "newest";
    this.drawPage();
  }

  turnPage(direction) {
    return this.work(async (turn) => {
      await this.reader[direction]();
      if (turn === this.turn) this.drawPage();
    });
  }

  drawPage() {
    const { messages } = this.reader;
    this.draw(this.isDown ? [...messages].reverse() : messages);
    const order = this.isDown ? "newest first" : "oldest first";
    setText(this.status, messages.length ? `${format.many(messages.length, "message")}, ${order}` : "Nothing here.");
  }

  // Finding.

  async find(asked, turn) {
    this.reader = null;
    this.search = null;
    this.draw([]);
    setText(this.status, "Searching…");
    const { lanes } = await lanesOf(this.ctx.api, this.topic, asked);
    const between = await lanesBetween(this.ctx.api, this.topic, lanes, asked.range);
    const search = new LogSearch(this.ctx.api, this.topic, between, { key: asked.key, text: asked.text, ...asked.range });
    if (turn !== this.turn) return;
    this.search = search;
    await this.goOn(turn);
  }

  findMore() {
    return this.work((turn) => this.goOn(turn));
  }

  async goOn(turn) {
    const { search } = this;
    const isWanted = () => turn === this.turn && !this.isStopped;
    this.isStopped = false;
    const told = () => {
      if (turn !== this.turn) return;
      this.draw(search.found);
      const share = search.total ? ` (${format.percent(search.searched / search.total)})` : "";
      const found = search.found.length ? `Found ${format.count(search.found.length)}` : "Found nothing";
      setText(this.status, `${found}${search.isOver ? "" : " so far"}, newest first. Searched ${format.count(search.searched)} of ${format.many(search.total, "message")}${share}.`);
    };
    told();
    this.drawPager();
    await search.go(told, isWanted);
    told();
  }

  stopSearch() {
    this.isStopped = true;
  }

  // Following.

  toggleTail() {
    if (this.tail) {
      this.go();
      return;
    }
    this.turn += 1;
    this.isBusy = false;
    this.search = null;
    this.reader = null;
    fill(this.trouble);
    this.tail = new LogTail(this.ctx.api, this.topic, this.bar.choice());
    this.tailRows = [];
    set(this.follow, { "aria-pressed": "true" });
    this.draw([]);
    setText(this.status, "Waiting for messages…");
    this.drawPager();
    this.lookForMore();
  }

  endTail() {
    this.tail = null;
    set(this.follow, { "aria-pressed": "false" });
  }

  async lookForMore() {
    const { tail } = this;
    if (!tail || tail.isLooking) return;
    tail.isLooking = true;
    try {
      const { messages, passed } = await tail.look();
      if (tail !== this.tail) return;
      fill(this.trouble);
      this.tailRows = [...messages.reverse(), ...this.tailRows].slice(0, ROWS_MAX);
      tail.passed = (tail.passed || 0) + passed;
      tail.came = (tail.came || 0) + messages.length;
      this.draw(this.tailRows);
      const skipped = tail.passed ? `; ${format.count(tail.passed)} more came too fast to show` : "";
      if (tail.came) setText(this.status, `${format.many(tail.came, "message")} since you began${skipped}. Newest first.`);
    } catch (error) {
      if (!isGone(error) && tail === this.tail) fill(this.trouble, problem(error));
    } finally {
      tail.isLooking = false;
    }
  }

  // Drawing.

  draw(rows) {
    this.rows = rows;
    this.list.update(rows);
    // One that was come to by its address needs no row beside it.
    if (this.panel.isOpen && this.opened && this.opened !== this.addressed && !rows.some((row) => placeOf(row) === placeOf(this.opened)) && !this.tail) this.panel.close({ keepsFocus: true });
    this.drawPager();
  }

  drawPager() {
    const { reader, search, isBusy } = this;
    set(this.older, { hidden: !reader, disabled: isBusy || !reader?.hasOlder });
    set(this.newer, { hidden: !reader, disabled: isBusy || !reader?.hasNewer });
    set(this.stop, { hidden: !search || !isBusy || search.isOver });
    set(this.more, { hidden: !search || isBusy || search.isOver });
  }

  // The message of an address.

  /** Open the message that the address names, in the panel beside whatever else is shown. */
  async openAddressed() {
    const { partition, priority, offset } = this.ctx.params;
    if (offset === undefined) return;
    const place = `offset ${offset} of partition ${partition}, ${priority}`;
    try {
      const lane = { partition, priority };
      const { messages } = await readLane(this.ctx.api, this.topic, lane, { offset, limit: 1 });
      const [message] = messages;
      if (!message || message.offset !== Number(offset)) throw new Error(`There is no ${place}: it was never there, or it is gone.`);
      this.addressed = message;
      this.open(message);
    } catch (error) {
      if (isGone(error)) return;
      const isOut = error.code === "offset_out_of_range";
      fill(this.missing, problem(isOut ? new Error(`There is no ${place}: the log has ${format.count(error.fields.start)} to before ${format.count(error.fields.end)}.`) : error));
      this.tellAddress();
    }
  }

  /** Let the address say what the toolbar asked for, and which message is open. */
  tellAddress() {
    if (this.ctx.signal.aborted) return;
    showAddress(this.topic, this.asked ?? {}, this.panel.isOpen ? this.opened : null);
  }

  closed() {
    markOpened(this.list, null);
    this.opened = null;
    this.tellAddress();
  }

  open(message) {
    this.opened = message;
    fill(this.missing);
    markOpened(this.list, placeOf(message));
    const index = this.rows.findIndex((row) => placeOf(row) === placeOf(message));
    const { partition, priority, offset } = message;
    this.panel.open({
      title: `Offset ${format.count(offset)}`,
      buttons: stepButtons("message", this.rows, index, (other) => this.open(other)),
      opener: () => openerOf(this.list, placeOf(message)),
      content: [
        ...messageView(message, { topic: this.topic, address: linkToMessage({ topic: this.topic, partition, priority, offset }), facts: [["Topic", this.topic], ["Partition", String(partition)], ["Priority", priority], ["Offset", format.count(offset)]] }),
        h("div", { class: "row" }, action("Publish again", "write", () => this.publish(message), { class: "small" })),
      ],
    });
    this.tellAddress();
  }

  async publish(message) {
    const put = await publishDialog(this.ctx, this.topic, this.partitions, message);
    if (put && !this.tail && this.reader && this.isDown) this.go();
  }
}

function crumbs(topic) {
  return h("nav", { class: "crumbs", "aria-label": `More about ${topic}` },
    h("a", { href: link("topics", topic) }, "Topic"), h("a", { href: link("dead-letters", topic) }, "Dead letters"), h("a", { href: link("delayed", topic) }, "Delayed"));
}
