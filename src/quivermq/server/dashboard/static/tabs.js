// One event stream for all tabs of a browser: it has six connections to a broker, and a stream takes one for good.
//
// One tab leads and tells the others what it hears. Who hears nothing for a while leads itself; of two that lead, the one that
// began later goes on, because it had a reason. Nothing here needs a secure context, as locks and shared workers would.

// A leader says something at least every second or two.
export const SILENCE_MS = 6000;
const ANSWER_MS = 150;
const BEAT_MS = 2000;

export class Tabs {
  /** onlead(): this tab is to listen to the broker; onfollow(): no longer; onhear(what): what the leader told. */
  constructor({ onlead, onfollow, onhear, onask }) {
    Object.assign(this, { onlead, onfollow, onhear, onask });
    this._id = Math.random().toString(36).slice(2);
    this._channel = null;
    this._leads = null;
    this._timer = 0;
    this._beat = 0;
  }

  get isLeader() {
    return this._leads !== null;
  }

  /** Take part among the tabs of the same name: those that have the same key. */
  join(name) {
    this.leave();
    this._channel = new BroadcastChannel(`quiver-${name}`);
    this._channel.onmessage = ({ data }) => this._hear(data);
    this._post({ kind: "who" });
    this._wait(ANSWER_MS);
  }

  /** Take part no more; if it led, another one does at once. */
  leave() {
    if (!this._channel) return;
    if (this.isLeader) this._post({ kind: "bye" });
    this._stopLeading();
    clearTimeout(this._timer);
    this._channel.close();
    this._channel = null;
  }

  /** Ask the leader for everything, as one who missed something. */
  ask() {
    this._post({ kind: "who" });
  }

  /** As the leader: tell all others, or one of them. */
  tell(what, to = null) {
    if (this.isLeader) this._post({ kind: "told", what, to, leads: this._leads });
  }

  _lead() {
    this._leads = Date.now();
    clearTimeout(this._timer);
    this._post({ kind: "beat", leads: this._leads });
    // While it waits for the broker it has nothing to tell, and is still there.
    this._beat = setInterval(() => this._post({ kind: "beat", leads: this._leads }), BEAT_MS);
    this.onlead();
  }

  _stopLeading() {
    clearInterval(this._beat);
    this._leads = null;
  }

  _wait(ms) {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._lead(), ms);
  }

  _post(message) {
    this._channel?.postMessage({ ...message, from: this._id });
  }

  _hear(message) {
    if (message.kind === "who") {
      if (this.isLeader) this._answer(message.from);
      return;
    }
    if (message.kind === "bye") {
      // Not all at once: the first one tells the others.
      if (!this.isLeader) this._wait(Math.random() * ANSWER_MS);
      return;
    }
    if (this.isLeader) {
      const isLater = message.leads > this._leads || (message.leads === this._leads && message.from > this._id);
      if (!isLater) return;
      this._stopLeading();
      this.onfollow();
      this._post({ kind: "who" });
    }
    this._wait(SILENCE_MS);
    if (message.kind === "told" && (!message.to || message.to === this._id)) this.onhear(message.what);
  }

  _answer(to) {
    this._post({ kind: "beat", leads: this._leads });
    const what = this.onask();
    if (what) this.tell(what, to);
  }
}

/** A name for a key that does not tell it: tabs with another key see other topics. */
export function nameOf(key) {
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (const letter of key) {
    const code = letter.codePointAt(0);
    a = Math.imul(a ^ code, 2654435761);
    b = Math.imul(b ^ code, 1597334677);
  }
  return `${(a >>> 0).toString(36)}${(b >>> 0).toString(36)}`;
}
