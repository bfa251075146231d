// Which pages there are, and how they are addressed.

import { CLUSTER } from "./api.js";

// The first that fits is taken. `{name}` is one part of the address and may hold anything.
export const PAGES = [
  { route: "overview", module: "overview", title: "Overview", nav: "Overview", key: "o" },
  { route: "topics", module: "topics", title: "Topics", nav: "Topics", key: "t" },
  { route: "topics/{topic}", module: "topic", title: "{topic}", within: "topics" },
  { route: "messages", module: "messages", title: "Messages", nav: "Messages", key: "m" },
  { route: "messages/{topic}", module: "messages", title: "Messages of {topic}", within: "messages" },
  { route: "messages/{topic}/{partition}/{priority}/{offset}", module: "messages", title: "Messages of {topic}", within: "messages" },
  { route: "groups", module: "groups", title: "Groups", nav: "Groups", key: "g" },
  { route: "groups/{topic}/{group}", module: "group", title: "{group} of {topic}", within: "groups" },
  { route: "dead-letters", module: "dead_letters", title: "Dead letters", nav: "Dead letters", key: "d" },
  { route: "dead-letters/{topic}", module: "dead_letters", title: "Dead letters of {topic}", within: "dead-letters" },
  { route: "delayed", module: "delayed", title: "Delayed", nav: "Delayed", key: "l" },
  { route: "delayed/{topic}", module: "delayed", title: "Delayed messages of {topic}", within: "delayed" },
  ...(CLUSTER === null ? [] : [{ route: "cluster", module: "cluster", title: "Cluster", nav: "Cluster", key: "c" }]),
];

/** The page of an address: {page, params, query}. */
export function find(hash) {
  const [address, search = ""] = hash.replace(/^#\/?/, "").split("?");
  const asked = (address || "overview").split("/").filter(Boolean).map(decoded);
  for (const page of PAGES) {
    const wanted = page.route.split("/");
    if (wanted.length !== asked.length) continue;
    const params = {};
    const fits = wanted.every((part, index) => {
      if (!part.startsWith("{")) return part === asked[index];
      params[part.slice(1, -1)] = asked[index];
      return true;
    });
    if (fits) return { page, params, query: Object.fromEntries(new URLSearchParams(search)) };
  }
  return null;
}

/** `link("topics", name)` → "#/topics/…", whatever is in the name. */
export function link(...segments) {
  return `#/${segments.map(encodeURIComponent).join("/")}`;
}

/** The address of one message. */
export function linkToMessage({ topic, partition, priority, offset }) {
  return link("messages", topic, String(partition), priority, String(offset));
}

/**
 * Let the address say something more of what is shown, so that it can be sent to somebody, without going there
 * again: {name: text}, null for what is as always.
 */
export function remember(told) {
  const [address, search = ""] = location.hash.split("?");
  const query = new URLSearchParams(search);
  for (const [name, text] of Object.entries(told)) {
    if (text === null || text === undefined || text === "") query.delete(name);
    else query.set(name, text);
  }
  replaceAddress((address || "#/overview") + (query.size ? `?${query}` : ""));
}

/** Let the address be another one, without going there. */
export function replaceAddress(address) {
  if (address !== location.hash) history.replaceState(history.state, "", address);
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    // Somebody wrote the address by hand.
    return part;
  }
}
