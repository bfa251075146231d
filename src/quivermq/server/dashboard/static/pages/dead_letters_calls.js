// What is asked of the broker about dead letters, step by step where one call would take too long.

import { path } from "../api.js";
import { live } from "../live.js";

/** The topic with the dead letters of a topic, which says so itself: what its name ends with is a setting. */
export function gravesOf(topic) {
  return Object.values(live.latest?.topics ?? {}).find(({ dead_letters_of: of }) => of === topic)?.topic ?? topic;
}

/** The topic whose dead letters a topic has; for a topic of its own, that one. */
export function originOf(topic) {
  return live.latest?.topics[topic]?.dead_letters_of ?? (live.latest?.topics[topic] ? topic : topic.replace(/\.dlq$/, ""));
}

const AT_ONCE = 2000;
const PATIENCE_MS = 60_000;

/** Why messages of a topic were given up: [{reason, topic, group, messages}], the most frequent first. */
export async function countReasons(api, topic) {
  const counts = new Map();
  let after;
  do {
    const page = await api.get(path("topics", gravesOf(topic), "dead-letters", "reasons"), { query: { after }, timeoutMs: PATIENCE_MS }).catch(withoutTopic);
    for (const { reason, topic: from, group, messages } of page.reasons) {
      const key = JSON.stringify([reason, from, group]);
      const known = counts.get(key);
      counts.set(key, { reason, topic: from, group, messages: messages + (known?.messages ?? 0) });
    }
    after = page.next;
  } while (after !== null);
  return [...counts.values()].sort((a, b) => b.messages - a.messages || a.reason.localeCompare(b.reason));
}

function withoutTopic(error) {
  if (error.code !== "topic_not_found") throw error;
  return { reasons: [], next: null };
}

/**
 * Send dead letters back, some at a time, and no more than there were at the beginning: what fails again would go
 * round in circles. Returns how many.
 */
export function redriveAll(api, topic, filter, count, told) {
  return inSteps(filter, count, told, async (body) =>
    (await api.post(path("topics", gravesOf(topic), "redrive"), { body, timeoutMs: PATIENCE_MS })).moved);
}

/** Take dead letters out for good, no more of them than somebody was asked about. Returns how many. */
export function discardAll(api, topic, filter, count, told) {
  return inSteps(filter, count, told, async (body) =>
    (await api.post(path("topics", gravesOf(topic), "discard"), { body, timeoutMs: PATIENCE_MS })).discarded);
}

/** Do something to so many dead letters, some at a time, until that was all of them. Returns how many it were. */
async function inSteps({ ids, ...filter }, count, told, act) {
  let changed = 0;
  for (let begun = 0; begun < count; begun += AT_ONCE) {
    const limit = Math.min(AT_ONCE, count - begun);
    const did = await act(ids ? { ids: ids.slice(begun, begun + limit) } : { ...filter, limit });
    changed += did;
    told(changed);
    // Ids that are gone say nothing about those behind them; a filter that finds less finds nothing more.
    if (!ids && did < limit) break;
  }
  return changed;
}
