// The event stream of the broker, for the whole dashboard at once, shared among the tabs of a browser. Read with fetch and not as an
// EventSource, which cannot send a key. It says in one word how it goes, and comes back by itself.

import { ApiError, authorization, gate, path, ROOT, session } from "./api.js";
import { History } from "./history.js";
import { nameOf, SILENCE_MS, Tabs } from "./tabs.js";

const CONNECT_MS = 10_000;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 15_000;
// A tab that nobody looks at needs no figures, and leads no others.
const HIDDEN_MS = 60_000;
const OFFLINE_AFTER = 3;

class Live extends EventTarget {
  constructor() {
    super();
    this.history = new History();
    /** "connecting", "live", "reconnecting", "offline" or "paused". */
    this.state = "connecting";
    /** Why it is not live, in words. */
    this.reason = "";
    this._failures = 0;
    this._abort = null;
    this._timer = 0;
    this._hiddenTimer = 0;
    this._known = null;
    this._tabs = new Tabs({
      onlead: () => this._connect(),
      onfollow: () => this._hangUp(),
      onhear: (what) => this._hear(what),
      onask: () => this._known && { kind: "event", name: "stats", data: this._known },
    });
    document.addEventListener("visibilitychange", () => this._onVisibility());
    window.addEventListener("online", () => this._retryNow());
    // The next tab takes over at once, and does not have to wait for silence.
    window.addEventListener("pagehide", () => this.stop());
    window.addEventListener("pageshow", ({ persisted }) => persisted && this.start());
  }

  /** The figures of the last second, or null before the first ones came. */
  get latest() {
    return this.history.latest;
  }

  /** Whether this tab is the one that listens to the broker. */
  get isLeader() {
    return this._tabs.isLeader;
  }

  /** Begin, or begin anew with another key. */
  start() {
    this.stop();
    this._failures = 0;
    this._tabs.join(nameOf(`${ROOT} ${session.key}`));
  }

  /** End, until it is started again. */
  stop() {
    this._tabs.leave();
    this._hangUp();
  }

  _hangUp() {
    clearTimeout(this._timer);
    this._abort?.abort();
    this._abort = null;
    this._known = null;
  }

  async _connect() {
    const abort = new AbortController();
    this._abort = abort;
    this._known = null;
    let silence = setTimeout(() => abort.abort(), CONNECT_MS);
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort(), SILENCE_MS);
    };
    try {
      await this._listen(abort.signal, heard);
      if (this._abort === abort) this._again("The broker ended the stream of events.");
    } catch (error) {
      // Another one was begun, or it was stopped.
      if (this._abort !== abort) return;
      if (error instanceof ApiError && error.status === 401) {
        this._say("offline", "The broker wants a key.");
        this._tabs.tell({ kind: "denied" });
        gate.dispatchEvent(new Event("unauthenticated"));
        return;
      }
      const words = error instanceof ApiError ? error.message : "The broker does not answer.";
      this._again(words);
    } finally {
      clearTimeout(silence);
    }
  }

  async _listen(signal, heard) {
    const headers = { ...authorization(), Accept: "text/event-stream" };
    const response = await fetch(`${path("events")}?changes=true`, { headers, signal, cache: "no-store", credentials: "omit" });
    if (!response.ok) {
      const told = await response.json().catch(() => ({}));
      throw new ApiError(told.error?.message || `The broker answered ${response.status}.`, { status: response.status });
    }
    heard();
    for await (const { name, data } of eventsOf(response.body, heard)) {
      this._tabs.tell({ kind: "event", name, data });
      // One that was lost: everything is told anew to who comes anew.
      if (!this._take(name, data)) return;
    }
  }

  /** As a tab that does not lead: what the leader told. */
  _hear(what) {
    if (what.kind === "event") {
      if (!this._take(what.name, what.data)) this._tabs.ask();
    }
    else if (what.kind === "denied") gate.dispatchEvent(new Event("unauthenticated"));
    else if (what.kind === "state") {
      this.history.breakOff();
      this._say(what.state, what.reason);
    }
  }

  /** Returns whether it fits to what was told before. */
  _take(name, data) {
    if (name !== "stats" && name !== "changes") {
      this.dispatchEvent(new CustomEvent(name, { detail: data }));
      return true;
    }
    if (name === "stats") this._known = withoutPrototypes(data);
    else if (this._known?.version === data.since) this._known = merged(this._known, data);
    else return false;
    const figures = this._known;
    for (const topic of Object.values(figures.topics)) {
      for (const group of Object.values(topic.groups)) {
        const at = group.oldest_unacked_at;
        group.oldest_unacked_ms = at ? Math.max(0, Math.round((figures.time - at) / 1000)) : 0;
      }
    }
    this.history.push(figures);
    this._failures = 0;
    this._say("live", "");
    this.dispatchEvent(new CustomEvent("stats", { detail: figures }));
    return true;
  }

  _again(reason) {
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this._failures);
    this._failures += 1;
    this.history.breakOff();
    this._say(this._failures > OFFLINE_AFTER ? "offline" : "reconnecting", reason);
    this._tabs.tell({ kind: "state", state: this.state, reason });
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._connect(), wait);
  }

  _retryNow() {
    if (this.state === "offline" || this.state === "reconnecting") this.start();
  }

  _onVisibility() {
    clearTimeout(this._hiddenTimer);
    if (document.hidden) {
      this._hiddenTimer = setTimeout(() => {
        this.stop();
        this._say("paused", "Nobody looks at this tab.");
      }, HIDDEN_MS);
    } else if (this.state !== "live") {
      this.start();
    }
  }

  _say(state, reason) {
    if (state === this.state && reason === this.reason) return;
    this.state = state;
    this.reason = reason;
    this.dispatchEvent(new Event("state"));
  }
}

/** A JSON merge patch of what is known: what is not there stays, null is gone. Nothing that is known is changed. */
export function merged(known, patch) {
  const found = Object.assign(Object.create(Object.getPrototypeOf(known)), known);
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete found[name];
    else if (isRecord(value) && isRecord(found[name])) found[name] = merged(found[name], value);
    else found[name] = isRecord(value) ? merged(Object.create(null), value) : value;
  }
  return found;
}

function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What is looked up by a name must not find what every object has, such as `constructor`. */
function withoutPrototypes(data) {
  return merged(Object.create(null), data);
}

/** The one that everybody listens to: "stats" and "topic" with `detail`, and "state". */
export const live = new Live();

async function* eventsOf(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    pending += value;
    const whole = pending.split("\n\n");
    pending = whole.pop();
    for (const text of whole) {
      const event = parsed(text);
      if (event) yield event;
    }
  }
}

function parsed(text) {
  let name = "message";
  const data = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  return data.length ? { name, data: JSON.parse(data.join("\n")) } : null;
}
