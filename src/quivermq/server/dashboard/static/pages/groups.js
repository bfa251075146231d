// All groups of all topics: how far behind, what they have in hand, who is a member.

import { isGone, path } from "../api.js";
import { fill, h } from "../dom.js";
import * as format from "../format.js";
import { live } from "../live.js";
import { problem } from "../notice.js";
import { link } from "../site.js";
import { stateTag, stateText } from "../states.js";
import { filterField, magnitude, table } from "../table.js";

const MEMBERS_MS = 5000;

export async function render(ctx) {
  const list = table({
    caption: "Groups",
    key: ({ topic, group }) => `${group} ${topic}`,
    empty: "No groups yet. One comes to be with its first receive, seek or join.",
    activity: ({ rates, pending, in_flight: held, retrying }) => [magnitude((rates?.delivered ?? 0) + (rates?.acked ?? 0)), magnitude((pending ?? 0) + held + retrying)],
    ctx,
    columns: COLUMNS,
    onopen: ({ topic, group }) => ctx.go("groups", topic, group),
  });
  const trouble = h("div", {});
  const summary = h("p", { class: "quiet-text" });
  // By group: what only the coordinator of members knows.
  let known = new Map();
  const draw = () => {
    if (!live.latest) return;
    const rows = rowsOf(live.latest, known);
    list.update(rows);
    summary.textContent = rows.length ? `${format.many(new Set(rows.map(({ group }) => group)).size, "group")} in ${format.many(new Set(rows.map(({ topic }) => topic)).size, "topic")}` : "";
  };
  const look = async () => {
    try {
      const { groups } = await ctx.api.get(path("groups"));
      known = new Map(groups.map((group) => [group.group, group]));
      fill(trouble);
    } catch (error) {
      // In its place and not as a message that stays: it is asked again and again.
      if (!isGone(error)) fill(trouble, problem(error, look));
    }
    draw();
  };
  ctx.head(filterField(list, "Filter groups"));
  ctx.add(trouble, list.element, summary);
  ctx.onStats(draw);
  await look();
  ctx.every(MEMBERS_MS, look);
}

/** A row for each group in each topic, also where its members have not begun yet. */
function rowsOf({ topics }, known) {
  const rows = [];
  for (const { topic, groups } of Object.values(topics)) {
    for (const figures of Object.values(groups)) {
      rows.push({ ...figures, topic, doing: figures.state, ...membersOf(known.get(figures.group)), rates: live.history.groupRates(topic, figures.group) });
    }
  }
  const seen = new Set(rows.map(({ topic, group }) => `${group} ${topic}`));
  for (const { group, topics: read } of known.values()) {
    for (const topic of read) {
      if (!seen.has(`${group} ${topic}`) && Object.hasOwn(topics, topic)) {
        rows.push({ topic, group, pending: null, in_flight: 0, retrying: 0, waiting_for_key: 0, oldest_unacked_ms: null, dead_letters: 0, ...membersOf(known.get(group)), rates: {} });
      }
    }
  }
  return rows;
}

function membersOf(summary) {
  return { members: summary?.members ?? 0, state: summary?.state ?? "empty" };
}

const number = (id, title, value, told = format.count, hint = undefined) => ({
  id, title, hint, kind: "num", sort: "desc", value, cell: (row) => told(value(row)),
});

const COLUMNS = [
  {
    id: "group", title: "Group", value: ({ group }) => group, mark: ({ group, topic }) => `${group} ${topic}`,
    cell: ({ group, topic }) => [h("a", { href: link("groups", topic, group) }, group)],
  },
  {
    id: "topic", title: "Topic", value: ({ topic }) => topic, mark: ({ topic }) => topic,
    cell: ({ topic }) => [h("a", { href: link("topics", topic) }, topic)],
  },
  {
    id: "doing", title: "State", kind: "tight", value: ({ doing }) => stateText(doing), mark: ({ doing }) => doing ?? "",
    cell: ({ doing }) => [doing ? stateTag(doing) : ""],
  },
  {
    id: "lag", title: "Lag", kind: "num", sort: "desc", hint: "Messages that nobody in the group has had", value: ({ pending }) => pending,
    cell: ({ pending }) => (pending === null ? "not begun" : format.count(pending)),
  },
  number("in_flight", "In flight", ({ in_flight: held }) => held),
  number("retrying", "Retrying", ({ retrying }) => retrying, format.count, "Failed, and due again later"),
  number("waiting_for_key", "Waiting for key", ({ waiting_for_key: held }) => held, format.count, "Earlier messages of their key are not finished"),
  number("oldest", "Oldest unacked", ({ oldest_unacked_ms: age }) => age ?? null, (ms) => (ms === null ? format.none : format.duration(ms))),
  number("delivered", "Out/s", ({ rates }) => rates?.delivered ?? null, format.rate, "Delivered a second"),
  number("acked", "Acked/s", ({ rates }) => rates?.acked ?? null, format.rate),
  {
    id: "members", title: "Members", kind: "num", sort: "desc", hint: "Of a group in stream mode", value: ({ members }) => members,
    mark: ({ members, state }) => `${members} ${state}`,
    cell: ({ members, state }) => [members ? format.count(members) : h("span", { class: "quiet-text" }, format.none), state === "rebalancing" ? h("span", { class: "tag warn" }, " rebalancing") : null],
  },
];
