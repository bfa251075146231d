// Reading the log of a topic page by page, in both directions, over some or all of its lanes at once. A lane is
// one priority of one partition; inside a lane the order is that of the log, between lanes that of time.

import { path } from "../api.js";

export const PAGE = 50;
// A browser has six connections to a broker, and the events take one.
const AT_ONCE = 4;
// Where offsets are gone in between, a look back goes further and further, but not for ever.
const LOOKS_MAX = 12;

/** Do something with each item, a few at a time; the results in order. */
export async function forEach(items, act) {
  const results = new Array(items.length);
  let next = 0;
  const work = async () => {
    while (next < items.length) {
      const index = next;
      next += 1;
      results[index] = await act(items[index]);
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, work));
  return results;
}

/** The lanes of a topic that were chosen: {partition, priority, start, end}. Empty choices stand for all. */
export async function lanesOf(api, topic, { partition = "", priority = "" } = {}) {
  const told = await api.get(path("topics", topic));
  const lanes = told.lanes.filter((lane) =>
    (partition === "" || lane.partition === Number(partition)) && (priority === "" || lane.priority === priority));
  return { lanes, partitions: told.partitions };
}

/** Read a part of one lane: {messages, next, start, end}. */
export function readLane(api, topic, lane, query) {
  return api.get(path("topics", topic, "partitions", String(lane.partition), "messages"), { query: { priority: lane.priority, ...query } });
}

/** The part of a topic that is shown, and what lies on either side of it. */
export class LogReader {
  constructor(api, topic, lanes) {
    this.api = api;
    this.topic = topic;
    // What is shown of a lane is from `low` to before `high`.
    this.lanes = lanes.filter(({ start, end }) => end > start).map((lane) => ({ ...lane, low: lane.end, high: lane.end }));
    this.messages = [];
  }

  get hasOlder() {
    return this.lanes.some(({ start, low }) => low > start);
  }

  get hasNewer() {
    return this.lanes.some(({ end, high }) => high < end);
  }

  /** Go to the end. */
  async newest() {
    for (const lane of this.lanes) lane.low = lane.high = lane.end;
    return this.older();
  }

  /** Go to an offset, in each lane to the nearest one there is. */
  async from(offset) {
    for (const lane of this.lanes) lane.low = lane.high = Math.min(Math.max(offset, lane.start), lane.end);
    return this.newer();
  }

  /** Go to a moment, in unix microseconds. */
  async since(timestamp) {
    await forEach(this.lanes, async (lane) => {
      const found = await readLane(this.api, this.topic, lane, { timestamp, limit: 1 });
      const offset = found.messages.length ? found.messages[0].offset : found.next;
      lane.low = lane.high = Math.min(Math.max(offset, lane.start), lane.end);
    });
    return this.newer();
  }

  /** The page before, its oldest message first. */
  async older() {
    const found = await forEach(this.lanes, (lane) => this._before(lane));
    const stacks = this.lanes.map((lane, index) => ({ lane, messages: found[index].messages, isAll: found[index].isAll }));
    const taken = [];
    for (const lane of this.lanes) lane.high = lane.low;
    while (taken.length < PAGE) {
      const open = stacks.filter(({ messages, isAll }) => messages.length || !isAll);
      // Behind the last message that was fetched of a lane there may be a newer one than all others have.
      if (!open.length || (taken.length && open.some(({ messages }) => !messages.length))) break;
      const stack = open.reduce((best, each) => (newer(each.messages.at(-1), best.messages.at(-1)) ? each : best));
      if (!stack.messages.length) break;
      const message = stack.messages.pop();
      stack.lane.low = message.offset;
      taken.push(message);
    }
    this._skipGaps(stacks);
    this.messages = taken.reverse();
    return this.messages;
  }

  /** The page behind, its oldest message first. */
  async newer() {
    const wanted = this._share();
    const found = await forEach(this.lanes, (lane) =>
      (lane.high < lane.end ? this._read(lane, { offset: lane.high, limit: wanted }) : { messages: [], next: lane.end, end: lane.end }));
    const lines = this.lanes.map((lane, index) => ({ lane, messages: [...found[index].messages], isAll: found[index].next >= lane.end, next: found[index].next }));
    const taken = [];
    for (const lane of this.lanes) lane.low = lane.high;
    while (taken.length < PAGE) {
      const open = lines.filter(({ messages, isAll }) => messages.length || !isAll);
      if (!open.length || (taken.length && open.some(({ messages }) => !messages.length))) break;
      const line = open.reduce((best, each) => (newer(best.messages[0], each.messages[0]) ? each : best));
      if (!line.messages.length) break;
      const message = line.messages.shift();
      line.lane.high = message.offset + 1;
      taken.push(message);
    }
    for (const { lane, messages, next } of lines) if (!messages.length) lane.high = Math.max(lane.high, Math.min(next, lane.end));
    this.messages = taken;
    return this.messages;
  }

  /** How many to fetch of each lane: all of a page from one, less from each of many. */
  _share() {
    return this.lanes.length <= AT_ONCE ? PAGE : Math.max(10, Math.ceil((2 * PAGE) / this.lanes.length));
  }

  /** The last messages before what is shown of a lane, and whether there are no others before them. */
  async _before(lane) {
    const wanted = this._share();
    let start = lane.low;
    for (let look = 0, width = wanted; look < LOOKS_MAX && start > lane.start; look += 1, width *= 4) {
      start = Math.max(lane.start, lane.low - width);
      const messages = await this._between(lane, start, lane.low);
      if (messages.length >= wanted || start === lane.start) return { messages, isAll: start === lane.start };
      if (messages.length && look > 2) return { messages, isAll: false };
    }
    return { messages: [], isAll: start === lane.start };
  }

  async _between(lane, start, end) {
    const found = [];
    for (let offset = start; offset < end;) {
      const page = await this._read(lane, { offset, limit: Math.min(end - offset, 1000) });
      found.push(...page.messages.filter((message) => message.offset < end));
      if (page.next <= offset) break;
      offset = page.next;
    }
    return found;
  }

  async _read(lane, query) {
    try {
      return await readLane(this.api, this.topic, lane, query);
    } catch (error) {
      if (error.code !== "offset_out_of_range") throw error;
      // Retention was faster.
      lane.start = Math.min(error.fields.start, lane.end);
      const offset = Math.max(query.offset, lane.start);
      return offset >= lane.end ? { messages: [], next: lane.end } : readLane(this.api, this.topic, lane, { ...query, offset });
    }
  }

  _skipGaps(stacks) {
    for (const { lane, messages, isAll } of stacks) {
      if (!messages.length && isAll) lane.low = lane.start;
    }
  }
}

/** What comes in at the ends of lanes from now on. */
export class LogTail {
  constructor(api, topic, choice) {
    this.api = api;
    this.topic = topic;
    this.choice = choice;
    this._ends = null;
  }

  /** What has come since the last look, oldest first, and how many were passed over because there were too many. */
  async look() {
    const { lanes } = await lanesOf(this.api, this.topic, this.choice);
    const key = (lane) => `${lane.partition} ${lane.priority}`;
    const isFirst = this._ends === null;
    const ends = this._ends || new Map();
    let passed = 0;
    const grown = lanes.filter((lane) => !isFirst && lane.end > (ends.get(key(lane)) ?? 0));
    const pages = await forEach(grown, (lane) => {
      const since = Math.max(ends.get(key(lane)) ?? 0, lane.start);
      const offset = Math.max(since, lane.end - PAGE);
      passed += offset - since;
      return readLane(this.api, this.topic, lane, { offset, limit: PAGE });
    });
    grown.forEach((lane, index) => ends.set(key(lane), pages[index].next));
    if (isFirst) for (const lane of lanes) ends.set(key(lane), lane.end);
    this._ends = ends;
    const messages = pages.flatMap((page) => page.messages).sort((a, b) => a.timestamp - b.timestamp || a.offset - b.offset);
    return { messages, passed };
  }
}

function newer(a, b) {
  if (!a || !b) return Boolean(a);
  return a.timestamp > b.timestamp || (a.timestamp === b.timestamp && a.offset > b.offset);
}
