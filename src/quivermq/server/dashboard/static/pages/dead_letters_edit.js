// Mending a dead letter: what was given up goes back as something else.

import { path } from "../api.js";
import { formDialog } from "../dialog.js";
import { freshId, h } from "../dom.js";
import { contentFields } from "../message_form.js";
import { gravesOf } from "./dead_letters_calls.js";

/** Ask for the new content and send it back. Resolves to how many went back; undefined when nobody wanted to. */
export async function editDialog(ctx, topic, letter) {
  const content = contentFields(letter);
  const { origin } = letter;
  const form = h(
    "form", { id: freshId("edit"), novalidate: true },
    h("p", { class: "help" }, `It goes back to ${origin.topic}, partition ${origin.partition}, ${origin.priority}, as a new message for every group. The dead letter is gone then; if anything fails, it stays as it is.`),
    content.elements,
  );
  const dialog = formDialog({ title: "Edit and redrive", action: "Redrive", form, wide: true, async apply() {
    const edits = { [letter.id]: content.read() };
    return (await ctx.api.post(path("topics", gravesOf(topic), "redrive"), { body: { edits } })).moved;
  } });
  form.querySelector("textarea, input").focus();
  return dialog.closed;
}
