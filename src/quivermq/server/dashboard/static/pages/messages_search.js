// Finding messages by key or text. The broker looks at a part of the log at a time, and this goes on until a page
// is full, everything was searched, or somebody has seen enough.

import { PAGE, readLane } from "./messages_reader.js";

/** A search over lanes, one after the other, each from its `from` on. */
export class LogSearch {
  constructor(api, topic, lanes, { key, text }) {
    this.api = api;
    this.topic = topic;
    this.query = { key, text };
    this.lanes = lanes.filter(({ end, from }) => end > from).map((lane) => ({ ...lane, next: lane.from }));
    this.total = this.lanes.reduce((sum, { end, from }) => sum + end - from, 0);
    this.found = [];
  }

  /** How many messages were looked at. */
  get searched() {
    return this.lanes.reduce((sum, { next, from }) => sum + next - from, 0);
  }

  get isOver() {
    return this.lanes.every(({ next, end }) => next >= end);
  }

  /** Look on until so many more are found. `told` is called after each step; `isWanted` says whether to go on. */
  async go(told, isWanted) {
    const enough = this.found.length + PAGE;
    for (const lane of this.lanes) {
      while (lane.next < lane.end && this.found.length < enough && isWanted()) {
        await this._step(lane, enough - this.found.length);
        told();
      }
    }
  }

  async _step(lane, limit) {
    try {
      const page = await readLane(this.api, this.topic, lane, { offset: lane.next, limit, ...this.query });
      this.found.push(...page.messages.filter(({ offset }) => offset < lane.end));
      lane.next = Math.min(Math.max(page.next, lane.next + 1), lane.end);
    } catch (error) {
      if (error.code !== "offset_out_of_range") throw error;
      // Retention was faster.
      lane.next = Math.max(lane.next + 1, Math.min(error.fields.start, lane.end));
    }
  }
}
