// Who we are to the broker, and so what can be done: a button that would only be refused says so beforehand.

import { h } from "./dom.js";
import { note } from "./toast.js";

const SCOPES = ["read", "consume", "write", "admin"];

// What GET /v1/key answered last; before that, nothing is forbidden here, and the broker has the last word.
export const access = { is_required: false, id: null, scope: "admin", topics: [">"] };

/** Why a call of this scope would be refused, or "" when it would not. */
export function refusal(scope) {
  if (SCOPES.indexOf(access.scope) >= SCOPES.indexOf(scope)) return "";
  return `This needs a key of scope ${scope}, and yours is for ${access.scope}.`;
}

/**
 * A button that does something of a scope. One that may not stays focusable, and says why, so that
 * nobody has to guess what is missing. `props` are those of `h`.
 */
export function action(label, scope, onclick, props = {}) {
  const reason = refusal(scope);
  if (!reason) return h("button", { type: "button", ...props, onclick }, label);
  return h("button", { type: "button", ...props, "aria-disabled": "true", title: reason, onclick: () => note(reason) }, label);
}
