// Mending a dead letter: what was given up goes back as something else.

import { isGone, path } from "../api.js";
import { openDialog } from "../dialog.js";
import { freshId, h, setText } from "../dom.js";
import { contentFields } from "../message_form.js";
import { SUFFIX } from "./dead_letters_calls.js";

/** Ask for the new content and send it back. Resolves to how many went back; undefined when nobody wanted to. */
export async function editDialog(ctx, topic, letter) {
  const content = contentFields(letter);
  const error = h("p", { class: "error", role: "alert" });
  const formId = freshId("edit");
  const { origin } = letter;
  const form = h(
    "form", { id: formId, novalidate: true },
    h("p", { class: "help" }, `It goes back to ${origin.topic}, partition ${origin.partition}, ${origin.priority}, as a new message for every group. The dead letter is gone then; if anything fails, it stays as it is.`),
    content.elements, error,
  );
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const send = h("button", { type: "submit", class: "primary", form: formId }, "Redrive");
  const dialog = openDialog({ title: "Edit and redrive", body: form, actions: [cancel, send], wide: true });
  form.querySelector("textarea").focus();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    setText(error, "");
    try {
      const edit = content.read();
      send.disabled = true;
      const { moved } = await ctx.api.post(path("topics", topic + SUFFIX, "redrive"), { body: { edits: { [letter.id]: edit } } });
      dialog.close(moved);
    } catch (failure) {
      if (isGone(failure)) return;
      setText(error, failure.message);
      send.disabled = false;
    }
  });
  return dialog.closed;
}
