// The way in, where the broker asks for a key.

import { call, path, session } from "./api.js";
import { fill, h } from "./dom.js";

/** A form that asks for a key, tries it, and calls `onDone` once the broker knows it. */
export function loginView({ words, onDone }) {
  const input = h("input", {
    id: "key", type: "password", name: "key", autocomplete: "current-password", required: true,
    placeholder: "qk_…", "aria-describedby": "key-help key-error", spellcheck: "false",
  });
  const error = h("p", { id: "key-error", class: "error", role: "alert" }, words);
  const submit = h("button", { type: "submit", class: "primary" }, "Log in");
  const form = h(
    "form", { class: "card login-card", onsubmit: tryKey },
    h("h1", {}, "Quiver"),
    h("p", {}, "This broker asks for an API key."),
    h("label", { for: "key" }, "API key"),
    input,
    error,
    h("p", { id: "key-help", class: "help" },
      "Make one on the broker's machine with ", h("code", {}, "quiver key create"),
      ". It is kept in this tab until you log out or close it."),
    submit,
  );

  async function tryKey(event) {
    event.preventDefault();
    const key = input.value.trim();
    submit.disabled = true;
    fill(error);
    try {
      await call("GET", path("key"), { key });
      session.key = key;
      onDone();
    } catch (failure) {
      fill(error, failure.status === 401 ? "The broker does not know this key." : failure.message);
      input.select();
      input.focus();
    } finally {
      submit.disabled = false;
    }
  }

  return h("main", { id: "main", class: "login" }, form);
}
