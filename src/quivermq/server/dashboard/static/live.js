// The event stream of the broker, for the whole dashboard at once. Read with fetch and not as an EventSource,
// which cannot send a key. It says in one word how it goes, and comes back by itself.

import { ApiError, authorization, gate } from "./api.js";
import { History } from "./history.js";

// The broker says something every second: silence of this length means that the connection is dead.
const SILENCE_MS = 6000;
const CONNECT_MS = 10_000;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 15_000;
// A browser has six connections to a broker, for all tabs together: one that nobody looks at gives its own back.
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
    document.addEventListener("visibilitychange", () => this._onVisibility());
    window.addEventListener("online", () => this._retryNow());
  }

  /** The figures of the last second, or null before the first ones came. */
  get latest() {
    return this.history.latest;
  }

  /** Begin, or begin anew with another key. */
  start() {
    this.stop();
    this._failures = 0;
    this._connect();
  }

  /** End, until it is started again. */
  stop() {
    clearTimeout(this._timer);
    this._abort?.abort();
    this._abort = null;
  }

  async _connect() {
    const abort = new AbortController();
    this._abort = abort;
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
    const response = await fetch("/v1/events", { headers, signal, cache: "no-store", credentials: "omit" });
    if (!response.ok) {
      const told = await response.json().catch(() => ({}));
      throw new ApiError(told.error?.message || `The broker answered ${response.status}.`, { status: response.status });
    }
    heard();
    for await (const event of eventsOf(response.body, heard)) this._take(event);
  }

  _take({ name, data }) {
    if (name === "stats") {
      // What is looked up by a name must not find what every object has, such as `constructor`.
      for (const named of [data.topics, ...Object.values(data.topics).map(({ groups }) => groups)]) Object.setPrototypeOf(named, null);
      this.history.push(data);
      this._failures = 0;
      this._say("live", "");
    }
    this.dispatchEvent(new CustomEvent(name, { detail: data }));
  }

  _again(reason) {
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this._failures);
    this._failures += 1;
    this.history.breakOff();
    this._say(this._failures > OFFLINE_AFTER ? "offline" : "reconnecting", reason);
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
