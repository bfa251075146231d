// Finding messages by key, text and time, the newest first. The broker looks at a part of the log at a time, and this
// goes on until a page is full, everything was searched, or somebody has seen enough.

import { forEach, PAGE, readLane } from "./messages_reader.js";

// How far a step goes back: far where little is found, and not so far that nobody sees it move.
const STEP_MIN = 500;
const STEP_MAX = 50_000;

/** Lanes as far as they lie between two moments, in unix microseconds, either of which may be missing. */
export async function lanesBetween(api, topic, lanes, { since, until }) {
  const placeOf = async (lane, timestamp) => {
    const page = await readLane(api, topic, lane, { timestamp, limit: 1 });
    return Math.min(Math.max(page.messages.length ? page.messages[0].offset : page.next, lane.start), lane.end);
  };
  return forEach(lanes, async (lane) => ({
    ...lane,
    from: since === undefined ? lane.start : await placeOf(lane, since),
    to: until === undefined ? lane.end : await placeOf(lane, until),
  }));
}

/** A search over lanes, from the end of each to its beginning: always on in the one that is nearest to now. */
export class LogSearch {
  constructor(api, topic, lanes, { key, text, since, until }) {
    this.api = api;
    this.topic = topic;
    this.query = { key, text };
    this.isWithin = ({ timestamp }) => (since === undefined || timestamp >= since) && (until === undefined || timestamp < until);
    // What was searched of a lane is from `low` on, and what is below is older than `time`.
    this.lanes = lanes.filter(({ from, to }) => to > from).map((lane) => ({ ...lane, low: lane.to, time: Infinity, step: STEP_MIN }));
    this.total = this.lanes.reduce((sum, { from, to }) => sum + to - from, 0);
    this.all = [];
    this.wanted = 0;
  }

  /** How many messages were looked at. */
  get searched() {
    return this.lanes.reduce((sum, { to, low }) => sum + to - low, 0);
  }

  /** What to show of what was found, the newest first: only what has its place, so that nothing moves once it is shown. */
  get found() {
    return this.all.slice(0, Math.min(this.wanted, this._settled()));
  }

  get isOver() {
    return this._open().length === 0 && this.all.length <= this.wanted;
  }

  /** Look on until so many more are found. `told` is called after each step; `isWanted` says whether to go on. */
  async go(told, isWanted) {
    this.wanted = Math.min(this.wanted, this.all.length) + PAGE;
    while (this._settled() < this.wanted && isWanted()) {
      const open = this._open();
      if (!open.length) return;
      await this._step(open.reduce((best, lane) => (lane.time > best.time ? lane : best)));
      told();
    }
  }

  _open() {
    return this.lanes.filter(({ from, low }) => low > from);
  }

  /** How many of those found have their place: nothing newer is left in any lane. */
  _settled() {
    const newest = Math.max(-Infinity, ...this._open().map(({ time }) => time));
    const index = this.all.findIndex(({ timestamp }) => timestamp < newest);
    return index < 0 ? this.all.length : index;
  }

  async _step(lane) {
    const start = Math.max(lane.from, lane.low - lane.step);
    const found = [];
    for (let offset = start; offset < lane.low;) {
      const page = await this._read(lane, { offset, limit: lane.step, ...this.query });
      found.push(...page.messages.filter((message) => message.offset < lane.low && this.isWithin(message)));
      offset = Math.max(page.next, offset + 1);
    }
    lane.step = found.length ? STEP_MIN : Math.min(STEP_MAX, lane.step * 4);
    lane.low = start;
    if (start > lane.from) lane.time = (await this._read(lane, { offset: start, limit: 1 })).messages[0]?.timestamp ?? lane.time;
    this.all = [...this.all, ...found].sort((a, b) => b.timestamp - a.timestamp || b.offset - a.offset);
  }

  async _read(lane, query) {
    try {
      return await readLane(this.api, this.topic, lane, query);
    } catch (error) {
      if (error.code !== "offset_out_of_range") throw error;
      // Retention was faster.
      lane.from = Math.min(error.fields.start, lane.to);
      lane.low = Math.max(lane.low, lane.from);
      return query.offset < lane.from && lane.from < lane.low ? this._read(lane, { ...query, offset: lane.from }) : { messages: [], next: lane.low };
    }
  }
}
