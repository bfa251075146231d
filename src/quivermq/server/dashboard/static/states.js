// What a group does, in one word, as the broker judges it.

import { h } from "./dom.js";

const STATES = {
  idle: ["", "idle", "Nothing is unfinished"],
  waiting: ["", "waiting", "What is unfinished came less than a minute ago, or is not due yet"],
  consuming: ["good", "consuming", "It takes messages, or has some in hand"],
  catching_up: ["good", "catching up", "More than a minute's work is pending, and that becomes less"],
  falling_behind: ["warn", "falling behind", "More than a minute's work is pending, and that does not become less"],
  paused: ["warn", "paused", "Somebody paused it: it is given nothing until somebody resumes it"],
  stalled: ["bad", "stalled", "Messages are pending, and none was taken for a minute"],
};

export function stateText(state) {
  return STATES[state]?.[1] ?? state ?? "";
}

export function stateTag(state) {
  const [level, word, hint] = STATES[state] || ["", state ?? "", ""];
  return h("span", { class: ["tag", level], title: hint }, word);
}

export function stateLevel(state) {
  return STATES[state]?.[0] ?? "";
}
