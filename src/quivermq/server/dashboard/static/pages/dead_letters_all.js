// The dead letters of all topics: which reasons there are, and how often.

import { isGone } from "../api.js";
import { visible } from "../content.js";
import { fill, h, setText } from "../dom.js";
import * as format from "../format.js";
import { live } from "../live.js";
import { problem } from "../notice.js";
import { link } from "../site.js";
import { filterField, table } from "../table.js";
import { countReasons, gravesOf } from "./dead_letters_calls.js";
import { forEach } from "./messages_reader.js";

const RECOUNT_MS = 15_000;

/** The topics that have dead letters, by their own names, as far as the figures tell: name → count. */
function topicsIn(data) {
  const found = new Map();
  for (const { topic, dead_letters: dead, dead_letters_of: origin, messages } of Object.values(data.topics)) {
    if (dead > 0) found.set(topic, dead);
    // Of a topic that was deleted its dead letters are left.
    if (origin && !Object.hasOwn(data.topics, origin) && messages > 0) found.set(origin, messages);
  }
  return found;
}

/** A text that is another one whenever dead letters have come or gone, also as many as the others. */
export function markOf(data, topic) {
  return `${topicsIn(data).get(topic) ?? 0} ${data.topics[gravesOf(topic)]?.bytes ?? 0}`;
}

/** Of all topics: which reasons there are, and how often. */
export async function showAll(ctx) {
  const list = table({
    caption: "Dead letters by topic and reason",
    key: ({ of, topic, reason, group }) => JSON.stringify([of, topic, reason, group]),
    empty: "No dead letters. Messages come here when a handler has failed for the last time, or rejected them.",
    sorted: { id: "messages", down: true },
    ctx,
    columns: [topicColumn(), reasonColumn(), { id: "group", title: "Group", value: ({ group }) => group }, countColumn()],
    onopen: (row) => {
      location.hash = linkTo(row.of, row);
    },
  });
  const trouble = h("div", {});
  const status = h("p", { class: "quiet-text", role: "status" });
  ctx.head(filterField(list, "Filter dead letters"));
  ctx.add(trouble, list.element, status);
  let counted = "";
  const count = async (data) => {
    const topics = topicsIn(data);
    const found = await forEach([...topics.keys()], async (topic) => (await countReasons(ctx.api, topic)).map((reason) => ({ ...reason, of: topic })));
    list.update(found.flat());
    const total = found.flat().reduce((sum, { messages }) => sum + messages, 0);
    setText(status, total ? `${format.many(total, "dead letter")} in ${format.many(topics.size, "topic")}` : "");
  };
  const recount = async () => {
    if (!live.latest) return;
    try {
      await count(live.latest);
      fill(trouble);
    } catch (error) {
      if (!isGone(error)) fill(trouble, problem(error, recount));
    }
  };
  let isCounting = false;
  ctx.onStats(async (data) => {
    const mark = JSON.stringify([...topicsIn(data).keys()].map((topic) => [topic, markOf(data, topic)]));
    if (mark === counted || isCounting) return;
    counted = mark;
    isCounting = true;
    await recount();
    isCounting = false;
  });
  ctx.every(RECOUNT_MS, recount);
}

/** The address of the dead letters of one reason and one group. */
export function linkTo(topic, { reason, group }) {
  return `${link("dead-letters", topic)}?${new URLSearchParams({ reason, group })}`;
}

function topicColumn() {
  return { id: "topic", title: "Topic", value: ({ of }) => of, mark: ({ of }) => of, cell: ({ of }) => [h("a", { href: link("dead-letters", of) }, of)] };
}

function reasonColumn() {
  return {
    id: "reason", title: "Reason", value: ({ reason }) => reason, mark: ({ reason, group }) => `${reason} ${group}`,
    cell: (row) => [h("a", { href: linkTo(row.of, row), class: "reason" }, visible(row.reason) || "(no reason given)")],
  };
}

function countColumn() {
  return { id: "messages", title: "Dead letters", kind: "num", sort: "desc", value: ({ messages }) => messages, cell: ({ messages }) => format.count(messages) };
}
