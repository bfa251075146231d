// What the event stream told in the last minutes: totals for the plots, and rates of every topic and group.
// Rates are differences of counters, so a look that was missed costs precision and nothing else.

const KEPT = 600;
const KEPT_OF_TOPIC = 60;
// Every rate is a mean over this time, in tables, tiles and plots: calm enough to read, quick enough to be true,
// and as far apart as the points that the broker keeps. So there is one number for each rate.
const MEAN_MS = 5000;

const COUNTERS = ["published", "delivered", "acked"];
const GAUGES = ["backlog", "lag", "in_flight", "retrying", "delayed", "dead_letters", "messages", "bytes"];

export class History {
  constructor() {
    this.latest = null;
    /** Oldest first: {t, published, delivered, acked (a second, or null), backlog, lag, in_flight, …}. */
    this.points = [];
    // The last totals, oldest first.
    this._totals = [];
    this._topics = new Map();
  }

  /** Take in one `stats` event. */
  push(data) {
    const t = data.time / 1000;
    const totals = { t, ...totalsOf(data) };
    if (isAnew(this._totals.at(-1), totals)) this._totals = [];
    this._totals.push(totals);
    while (this._totals.length > 2 && t - this._totals[1].t >= MEAN_MS) this._totals.shift();
    const point = { t, ...ratesBetween(this._totals[0], totals) };
    for (const name of [...GAUGES, "oldest_unacked_ms"]) point[name] = totals[name];
    point.free_bytes = data.free_bytes;
    this.points.push(point);
    if (this.points.length > KEPT) this.points.shift();
    this._keepTopics(t, data.topics);
    this.latest = data;
  }

  /** A gap: the broker was away, so the next difference means nothing. */
  breakOff() {
    this._totals = [];
    this._topics.clear();
  }

  /** Forget everything: whoever comes next may not be allowed to see it. */
  forget() {
    this.latest = null;
    this.points = [];
    this.breakOff();
  }

  /** {published, delivered, acked} of a topic, a second; null where nothing is known yet. */
  topicRates(topic) {
    return this._rates(topic, (figures) => figures);
  }

  /** {delivered, acked} of a group, a second. */
  groupRates(topic, group) {
    return this._rates(topic, (figures) => figures.groups[group]);
  }

  /** Rates of a topic in the last minute, as points of a plot: {t, published, delivered, acked}. */
  topicPoints(topic) {
    const looks = this._topics.get(topic) || [];
    let first = 0;
    return looks.slice(1).map((look, index) => {
      while (first < index && look.t - looks[first + 1].t >= MEAN_MS) first += 1;
      return { t: look.t, ...ratesBetween(looks[first], look) };
    });
  }

  /** The same as bare numbers, for small plots. */
  topicSeries(topic, name = "published") {
    return this.topicPoints(topic).map((point) => point[name] ?? 0);
  }

  /** Rates and gauges of a group in the last minute, as points of a plot. */
  groupPoints(topic, group) {
    const looks = (this._topics.get(topic) || []).filter(({ groups }) => Object.hasOwn(groups, group));
    let first = 0;
    return looks.slice(1).map((look, index) => {
      while (first < index && look.t - looks[first + 1].t >= MEAN_MS) first += 1;
      const [from, to] = [looks[first].groups[group], look.groups[group]];
      return { t: look.t, ...ratesBetween({ ...from, t: looks[first].t }, { ...to, t: look.t }), lag: to.lag, in_flight: to.in_flight };
    });
  }

  _rates(topic, pick) {
    const looks = this._topics.get(topic) || [];
    const last = looks.at(-1);
    const first = looks.findLast((look) => last.t - look.t >= MEAN_MS) || looks[0];
    const [from, to] = [first && pick(first), last && pick(last)];
    return ratesBetween({ ...from, t: first?.t }, { ...to, t: last?.t });
  }

  _keepTopics(t, topics) {
    for (const known of this._topics.keys()) {
      if (!(known in topics)) this._topics.delete(known);
    }
    for (const [name, topic] of Object.entries(topics)) {
      const look = lookOf(t, topic);
      let looks = this._topics.get(name) || [];
      if (isAnew(looks.at(-1), look)) looks = [];
      looks.push(look);
      if (looks.length > KEPT_OF_TOPIC) looks.shift();
      this._topics.set(name, looks);
    }
  }
}

/** What all topics and groups have together. */
export function totalsOf(data) {
  const totals = Object.fromEntries([...COUNTERS, ...GAUGES, "oldest_unacked_ms"].map((name) => [name, 0]));
  for (const topic of Object.values(data.topics)) {
    totals.published += topic.published;
    totals.messages += topic.messages;
    totals.bytes += topic.bytes;
    totals.delayed += topic.delayed;
    totals.dead_letters += topic.dead_letters;
    for (const group of Object.values(topic.groups)) {
      totals.delivered += group.delivered;
      totals.acked += group.acked;
      totals.backlog += group.backlog;
      totals.lag += group.pending;
      totals.in_flight += group.in_flight;
      totals.retrying += group.retrying;
      totals.oldest_unacked_ms = Math.max(totals.oldest_unacked_ms, group.oldest_unacked_ms);
    }
  }
  return totals;
}

function lookOf(t, topic) {
  const groups = {};
  let [delivered, acked] = [0, 0];
  for (const [name, group] of Object.entries(topic.groups)) {
    groups[name] = { delivered: group.delivered, acked: group.acked, lag: group.pending, in_flight: group.in_flight };
    delivered += group.delivered;
    acked += group.acked;
  }
  return { t, published: topic.published, delivered, acked, groups };
}

/** What was counted a second between two looks; null where nobody knows. */
function ratesBetween(from, to) {
  return Object.fromEntries(COUNTERS.map((name) => [name, perSecond(from[name], to[name], to.t - from.t)]));
}

/** Whether a counter is smaller than before: then the broker was started anew, and what was before does not count. */
function isAnew(before, now) {
  return before !== undefined && COUNTERS.some((name) => now[name] < before[name]);
}

/** A counter that is smaller than before began anew: nobody knows the rate then. */
function perSecond(from, to, ms) {
  if (typeof from !== "number" || typeof to !== "number" || !(ms > 0) || to < from) return null;
  return ((to - from) * 1000) / ms;
}
