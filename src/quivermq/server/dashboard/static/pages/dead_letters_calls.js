// What is asked of the broker about dead letters, step by step where one call would take too long.

import { path } from "../api.js";

export const SUFFIX = ".dlq";

const REDRIVEN_AT_ONCE = 2000;
const PATIENCE_MS = 60_000;

/** Why messages of a topic were given up: [{reason, topic, group, messages}], the most frequent first. */
export async function countReasons(api, topic) {
  const counts = new Map();
  let after;
  do {
    const page = await api.get(path("topics", topic + SUFFIX, "dead-letters", "reasons"), { query: { after }, timeoutMs: PATIENCE_MS }).catch(withoutTopic);
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
export async function redriveAll(api, topic, filter, count, told) {
  let moved = 0;
  while (moved < count) {
    const ids = filter.ids?.slice(moved, moved + REDRIVEN_AT_ONCE);
    const limit = Math.min(REDRIVEN_AT_ONCE, count - moved);
    const body = ids ? { ids } : { ...filter, limit };
    const answer = await api.post(path("topics", topic + SUFFIX, "redrive"), { body, timeoutMs: PATIENCE_MS });
    moved += answer.moved;
    told(moved);
    if (ids ? moved >= filter.ids.length || ids.length === 0 || answer.moved < ids.length : answer.moved < limit) break;
  }
  return moved;
}

/** Take dead letters out for good. Returns how many. */
export async function discardAll(api, topic, filter) {
  const answer = await api.post(path("topics", topic + SUFFIX, "discard"), { body: filter, timeoutMs: PATIENCE_MS });
  return answer.discarded;
}
