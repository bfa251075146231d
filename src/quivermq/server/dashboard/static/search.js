// Search over pages, topics and groups, by keyboard.

import { fill, freshId, h, set } from "./dom.js";
import { openDialog } from "./dialog.js";
import { live } from "./live.js";

const SHOWN_MAX = 12;

/** Open the search. What is chosen is gone to. */
export function openSearch(pages) {
  const listId = freshId("found");
  const input = h("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": listId, "aria-label": "Search",
    placeholder: "A topic, a group, a page…", autocomplete: "off", spellcheck: "false", "aria-autocomplete": "list",
  });
  const list = h("ul", { id: listId, role: "listbox", class: "found", "aria-label": "Results" });
  const dialog = openDialog({ title: "Search", body: [input, list] });
  const places = placesOf(pages);
  let found = [];
  let at = 0;

  function draw() {
    found = ranked(places, input.value).slice(0, SHOWN_MAX);
    at = Math.min(at, Math.max(0, found.length - 1));
    fill(list, found.length ? found.map(entry) : h("li", { class: "empty" }, "Nothing is called that."));
    mark();
  }

  function entry(place, index) {
    return h(
      "li", { role: "option", id: `${listId}-${index}`, onclick: () => choose(index), onpointermove: () => move(index) },
      h("span", { class: "found-name" }, place.name),
      h("span", { class: "found-kind" }, place.kind),
    );
  }

  function move(index) {
    at = (index + found.length) % found.length;
    mark();
  }

  function mark() {
    [...list.querySelectorAll("[role=option]")].forEach((item, index) => {
      set(item, { "aria-selected": index === at ? "true" : "false" });
      if (index === at) item.scrollIntoView({ block: "nearest" });
    });
    set(input, { "aria-activedescendant": found.length ? `${listId}-${at}` : null });
  }

  function choose(index) {
    const place = found[index];
    if (!place) return;
    dialog.close();
    location.hash = place.to;
  }

  input.addEventListener("input", () => {
    at = 0;
    draw();
  });
  input.addEventListener("keydown", (event) => {
    const acts = { ArrowDown: () => move(at + 1), ArrowUp: () => move(at - 1), Enter: () => choose(at) };
    if (found.length && acts[event.key]) {
      event.preventDefault();
      acts[event.key]();
    }
  });
  draw();
}

function placesOf(pages) {
  const places = pages.filter(({ nav }) => nav).map(({ nav, route }) => ({ name: nav, kind: "page", to: `#/${route}` }));
  for (const [name, topic] of Object.entries(live.latest?.topics || {})) {
    const part = encodeURIComponent(name);
    places.push({ name, kind: "topic", to: `#/topics/${part}` });
    places.push({ name: `${name} messages`, kind: "messages", to: `#/messages/${part}` });
    for (const group of Object.keys(topic.groups)) {
      places.push({ name: `${group} of ${name}`, kind: "group", to: `#/groups/${part}/${encodeURIComponent(group)}` });
    }
    if (topic.dead_letters) places.push({ name: `${name} dead letters`, kind: "dead letters", to: `#/dead-letters/${part}` });
    if (topic.delayed) places.push({ name: `${name} delayed`, kind: "delayed", to: `#/delayed/${part}` });
  }
  return places;
}

/** Those that hold every word, the closest first: begins with it, has a word that does, holds it. */
function ranked(places, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return places;
  return places
    .map((place, index) => ({ place, index, rank: rankOf(place.name.toLowerCase(), words) }))
    .filter(({ rank }) => rank < Infinity)
    .sort((a, b) => a.rank - b.rank || a.place.name.length - b.place.name.length || a.index - b.index)
    .map(({ place }) => place);
}

function rankOf(name, words) {
  return words.reduce((rank, word) => {
    if (name.startsWith(word)) return rank;
    if (name.split(/[^a-z0-9]+/).some((part) => part.startsWith(word))) return rank + 1;
    return name.includes(word) ? rank + 2 : Infinity;
  }, 0);
}
