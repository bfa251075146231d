// Messages as rows.

import { h } from "../dom.js";
import * as format from "../format.js";
import { previewCell, sizeOf } from "../message_view.js";
import { nodeColumn, table, textColumn } from "../table.js";

export const ROWS_MAX = 300;

/** What no other message of the topic has. */
export function placeOf({ partition, priority, offset }) {
  return `${partition}-${priority}-${offset}`;
}

/** The table; `onopen(message)` is called for a row. */
export function messageTable(onopen) {
  return table({
    caption: "Messages",
    key: placeOf,
    empty: "No messages.",
    sorted: { id: "offset" },
    onopen,
    limit: ROWS_MAX,
    columns: [
      nodeColumn("offset", "Offset", (message) => [h("button", { type: "button", class: "linklike", "aria-label": `Open offset ${format.count(message.offset)} of partition ${message.partition}, ${message.priority}`, onclick: () => onopen(message) }, format.count(message.offset))], "num"),
      textColumn("partition", "Partition", ({ partition }) => String(partition), "num"),
      nodeColumn("priority", "Priority", ({ priority }) => [h("span", { class: ["tag", priority === "high" && "warn"] }, priority)], "tight"),
      textColumn("time", "Time", ({ timestamp }) => format.time(timestamp), "tight moment"),
      nodeColumn("key", "Key", (message) => previewCell(message, "key")),
      nodeColumn("value", "Value", (message) => previewCell(message, "value"), "wide"),
      textColumn("headers", "Headers", ({ headers }) => String(Object.keys(headers).length || ""), "num minor"),
      textColumn("size", "Size", (message) => format.bytes(sizeOf(message)), "num minor"),
    ],
  });
}
