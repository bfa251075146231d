// The page at /docs: every call of the broker as its own description has it, each with a form that tries it.

import { call, path, ROOT, session } from "./api.js";
import { prettyJson } from "./content.js";
import { tryForm } from "./docs_try.js";
import { fill, h, marked, set, setText } from "./dom.js";
import { field } from "./message_form.js";
import { problem } from "./notice.js";
import { Schemas } from "./schemas.js";

const main = h("main", { id: "main", tabindex: "-1" });
const THEME_WORDS = { system: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };

function start() {
  const image = h("img", { alt: "", width: 22, height: 22 });
  image.setAttribute("src", `${ROOT}dashboard/icon.svg`);
  const theme = h("button", { type: "button", class: "quiet", onclick: () => setText(theme, THEME_WORDS[window.quiverTheme.next()]) }, THEME_WORDS[window.quiverTheme.get()]);
  fill(
    document.getElementById("app"),
    h(
      "header", { class: "bar" }, h("a", { class: "brand", href: ROOT }, image, "Quiver"),
      h("nav", { "aria-label": "Pages" }, h("a", { href: ROOT }, "Dashboard"), h("a", { href: `${ROOT}docs`, "aria-current": "page" }, "HTTP calls"), h("a", { href: `${ROOT}openapi.json` }, "openapi.json")),
      h("div", { class: "bar-end" }, theme),
    ),
    main,
  );
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  load();
}

async function load() {
  fill(main, h("p", { class: "loading page" }, "Loading…"));
  try {
    const [document_, who] = await Promise.all([call("GET", `${ROOT}openapi.json`), whoAmI()]);
    show(document_, who);
  } catch (error) {
    fill(main, h("div", { class: "page" }, problem(error, load)));
  }
}

/** What the broker says of the key in hand; one that is wrong or missing is told beside the field for it. */
async function whoAmI() {
  try {
    return await call("GET", path("key"), { key: session.key });
  } catch (error) {
    return { is_required: true, words: session.key ? error.message : "" };
  }
}

function show(api, who) {
  const schemas = new Schemas(api);
  const sections = api.tags.map(({ name }) => tagSection(api, schemas, name));
  const filter = h("input", { type: "search", class: "filter", placeholder: "Filter calls", "aria-label": "Filter calls", oninput: () => filterBy(sections, filter.value) });
  fill(main, h(
    "div", { class: "page docs" },
    h("div", { class: "page-head" }, h("h1", {}, "HTTP calls"), h("div", { class: "page-actions" }, filter)),
    h("p", { class: "quiet-text" }, `${api.info.summary} Release ${api.info.version}. `, marked(api.info.description)),
    who.is_required ? keyField(who) : null,
    h("nav", { class: "crumbs", "aria-label": "Kinds of calls" }, api.tags.map(({ name }) => h("a", { href: `#${idOf(name)}` }, name))),
    sections.map(({ element }) => element),
  ));
  openAddressed();
  window.addEventListener("hashchange", openAddressed);
}

function keyField(who) {
  const words = (told) => (told.id ? `This key is ${told.id}, for ${told.scope}.` : told.words || "Calls that need a key are sent with this one. It is kept in this tab.");
  const input = h("input", { type: "password", autocomplete: "current-password", spellcheck: "false", value: session.key, placeholder: "qk_…" });
  const element = field("API key", input, words(who));
  const told = element.querySelector(".help");
  input.addEventListener("change", async () => {
    session.key = input.value.trim();
    setText(told, words(await whoAmI()));
  });
  return h("div", { class: "card pad" }, element);
}

/** The calls of one kind: {element, calls: [{element, text}]}. */
function tagSection(api, schemas, name) {
  const calls = Object.entries(api.paths).flatMap(([address, methods]) =>
    Object.entries(methods).filter(([, about]) => about.tags.includes(name)).map(([method, about]) => operation(schemas, address, method, about)));
  return { calls, element: h("section", { class: "section" }, h("h2", { id: idOf(name), class: "docs-tag" }, name), h("div", { class: "card" }, calls.map(({ element }) => element))) };
}

function operation(schemas, address, method, about) {
  const body = h("div", { class: "docs-body" });
  const element = h(
    "details", { class: "docs-call", id: about.operationId },
    h("summary", {}, h("span", { class: `method method-${method}` }, method.toUpperCase()), h("code", { class: "docs-path" }, address), h("span", { class: "quiet-text docs-words" }, about.summary)),
    body,
  );
  // Drawn when it is looked at: there are many, and each has a form.
  element.addEventListener("toggle", () => {
    if (element.open && !body.childElementCount) fill(body, details(schemas, address, method, about));
  });
  return { element, text: `${method} ${address} ${about.summary} ${about.description}`.toLowerCase() };
}

function details(schemas, address, method, about) {
  return [
    about.description.split("\n\n").map((part) => h("p", {}, marked(part))),
    tryForm(schemas, address, method, about),
    about.requestBody ? contentDetails(schemas, "What the body may hold", about.requestBody.content) : null,
    h("details", {}, h("summary", {}, "What it answers"), h("dl", { class: "facts" }, Object.entries(about.responses).map(([status, reference]) => {
      const answer = schemas.resolved(reference);
      return [h("dt", {}, h("code", {}, status)), h("dd", {}, marked(answer.description ?? ""), Number(status) < 300 ? contents(schemas, answer.content) : null)];
    }))),
  ];
}

function contentDetails(schemas, title, content) {
  return h("details", {}, h("summary", {}, title), contents(schemas, content));
}

function contents(schemas, content) {
  return Object.entries(content || {}).map(([type, { schema }]) => [
    h("p", {}, h("code", {}, type)),
    schema ? h("pre", { class: "raw", tabindex: "0", "aria-label": `Schema of ${type}` }, prettyJson(JSON.stringify(schemas.unfolded(schema)))) : null,
  ]);
}

function filterBy(sections, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const { element, calls } of sections) {
    for (const each of calls) set(each.element, { hidden: !words.every((word) => each.text.includes(word)) });
    set(element, { hidden: calls.every((each) => each.element.hidden) });
  }
}

/** Open the call that the address names, such as #publish. */
function openAddressed() {
  const found = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (found instanceof HTMLDetailsElement) found.open = true;
  found?.scrollIntoView();
}

function idOf(tag) {
  return `kind-${tag.replace(/\W+/g, "-")}`;
}

start();
