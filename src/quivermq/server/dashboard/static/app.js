// The frame around all pages: navigation, which page is shown, whether the broker is there, and who we are.

import { access } from "./access.js";
import { ApiError, apiFor, call, gate, isGone, path, ROOT, session } from "./api.js";
import { fill, h, set, setText } from "./dom.js";
import { time } from "./format.js";
import { installKeys } from "./keys.js";
import { watchAddress } from "./leaving.js";
import { live } from "./live.js";
import { loginView } from "./login.js";
import { problem } from "./notice.js";
import { openSearch } from "./search.js";
import { find, link, PAGES } from "./site.js";
import { failed } from "./toast.js";

const STATE_WORDS = {
  connecting: "Connecting", live: "Live", reconnecting: "Reconnecting", offline: "Offline", paused: "Paused",
};
const THEME_WORDS = { system: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };

let leave = null;
let shownRoute = null;
let parts = null;
// The page that is shown: how it went, and what to do once the broker answers.
let shown = null;
let isIdentified = false;

function start() {
  installKeys(PAGES);
  // Not by its address, which says which page is shown.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  gate.addEventListener("unauthenticated", () => showLogin());
  live.addEventListener("state", showState);
  live.addEventListener("state", () => live.state === "live" && recover());
  watchAddress(() => route());
  enter();
  prepare();
}

/** Ask who we are, then show what was asked for. */
async function enter() {
  drawFrame();
  route();
  live.start();
  await identify();
}

async function identify() {
  try {
    Object.assign(access, await call("GET", path("key")));
    isIdentified = true;
    showIdentity();
    // What a key may do decides which buttons there are.
    if (access.is_required) route({ again: true });
  } catch {
    // 401 shows the login by itself. Anything else, every page will say for itself, and it is asked again.
    isIdentified = false;
  }
}

/** The broker is there again: what could not be shown without it is shown now. */
function recover() {
  if (!parts) return;
  if (!isIdentified) identify();
  shown?.recover();
}

function drawFrame() {
  const links = PAGES.filter(({ nav }) => nav).map(({ route: to, nav, key }) =>
    h("a", { href: `#/${to}`, dataset: { route: to }, "aria-keyshortcuts": `g ${key}` }, nav));
  parts = {
    links,
    state: h("span", { class: "state", role: "status" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", { class: "state-word" })),
    identity: h("span", { class: "identity" }),
    away: h("div", { class: "away", role: "alert", hidden: true }),
    main: h("main", { id: "main", tabindex: "-1" }),
  };
  const theme = h("button", { type: "button", class: "quiet", onclick: nextTheme }, THEME_WORDS[window.quiverTheme.get()]);
  fill(
    document.getElementById("app"),
    h(
      "header", { class: "bar" },
      h("a", { class: "brand", href: "#/overview" }, logo(), "Quiver"),
      h("nav", { "aria-label": "Pages" }, links),
      h(
        "div", { class: "bar-end" },
        parts.state,
        h("button", { type: "button", class: "quiet search-button", "aria-keyshortcuts": "/ Control+K", onclick: () => openSearch(PAGES) }, "Search ", h("kbd", {}, "/")),
        h("a", { class: "docs-link", href: `${ROOT}docs`, title: "Every call of the broker, to read and to try" }, "API"),
        theme,
        parts.identity,
      ),
    ),
    parts.away,
    parts.main,
  );
  showState();
  showIdentity();
}

function logo() {
  // A picture of our own, so `src` is safe to set; `h` refuses it for everybody else.
  const image = h("img", { alt: "", width: 22, height: 22 });
  image.setAttribute("src", `${ROOT}dashboard/icon.svg`);
  return image;
}

function nextTheme(event) {
  setText(event.currentTarget, THEME_WORDS[window.quiverTheme.next()]);
}

// Which page.

async function route({ again = false } = {}) {
  // Nothing is shown to whoever has to log in first; what was asked for is shown afterwards.
  if (!parts) return;
  const found = find(location.hash);
  leave?.();
  const abort = new AbortController();
  leave = () => abort.abort();
  if (!found) {
    showMissing();
    return;
  }
  const { page, params, query } = found;
  const title = page.title.replace(/\{(\w+)\}/g, (_, name) => params[name]);
  document.title = `${title} · Quiver`;
  for (const each of parts.links) {
    const isHere = each.dataset.route === (page.within || page.route);
    set(each, { "aria-current": isHere ? "page" : null });
    // On a phone there is no room for all of them.
    if (isHere) each.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  const isFirst = shownRoute === null;
  if (!again) closeDialogs();
  const isOther = shownRoute !== location.hash;
  shownRoute = location.hash;
  const content = h("div", { class: "page", "aria-busy": "true", dataset: { route: location.hash } }, h("h1", { tabindex: "-1" }, title));
  fill(parts.main, content);
  if (isOther && !again && !isFirst) {
    scrollTo(0, 0);
    // From here the keyboard goes on, and whoever listens instead of looking hears the new page.
    if (document.activeElement === document.body || document.activeElement?.closest?.("nav, main")) parts.main.focus({ preventScroll: true });
  }
  const visit = new PageVisit(abort.signal, again ? shown?.wait : undefined);
  shown = visit;
  const context = contextFor(abort, content, params, query, visit);
  let module;
  try {
    module = await moduleOf(page);
  } catch {
    if (abort.signal.aborted) return;
    content.append(problem(new Error("This page could not be loaded: the broker does not answer. It is tried again by itself.")));
    // A module that failed stays failed for as long as the document lives.
    window.quiverReload();
    return;
  }
  try {
    if (!abort.signal.aborted) await module.render(context);
  } catch (error) {
    if (!abort.signal.aborted && !isGone(error)) content.append(problem(error));
  }
  set(content, { "aria-busy": null });
  visit.isDrawn();
}

const RETRY_FIRST_MS = 2000;
const RETRY_LONGEST_MS = 30_000;

/** One showing of a page. One that could not get what it needs at the beginning is shown anew, later and later. */
class PageVisit {
  constructor(signal, wait = RETRY_FIRST_MS) {
    this.wait = wait;
    this._signal = signal;
    this._failed = false;
    this._isDrawn = false;
    this._timer = 0;
    signal.addEventListener("abort", () => clearTimeout(this._timer));
  }

  /** A call failed because nobody answered. What fails later, the page itself tries again or offers to. */
  failed(error) {
    if (!this._isDrawn && error instanceof ApiError && (error.retryable || error.status === 0)) this._failed = true;
  }

  isDrawn() {
    this._isDrawn = true;
    if (this._failed && !this._signal.aborted) this._timer = setTimeout(() => this.recover(), this.wait);
  }

  recover() {
    if (!this._failed || !this._isDrawn || this._signal.aborted) return;
    clearTimeout(this._timer);
    this.wait = Math.min(RETRY_LONGEST_MS, this.wait * 2);
    // Whoever is typing is not disturbed.
    const isBusy = document.querySelector("dialog[open]") || document.activeElement?.matches?.("input, textarea, select");
    if (isBusy) this._timer = setTimeout(() => this.recover(), RETRY_FIRST_MS);
    else route({ again: true });
  }
}

function moduleOf(page) {
  return import(`./pages/${page.module}.js`);
}

/** Have every page at hand before it is asked for: then also those open while the broker is slow or away. */
async function prepare() {
  for (const page of PAGES) await moduleOf(page).catch(() => undefined);
}

/** What a page has in hand. Everything that it begins ends when it is left. */
function contextFor(abort, content, params, query, visit) {
  const { signal } = abort;
  const api = apiFor(signal, (error) => {
    visit.failed(error);
    if (isMissing(error, params)) showAbsent(abort, content, params, error);
  });
  return {
    params,
    query,
    signal,
    content,
    api,
    /** Add to the page. */
    add: (...children) => content.append(...children.flat().filter(Boolean)),
    /** Put these in the place of everything below the heading. */
    show: (...children) => fill(content, content.firstChild, children),
    /** Put something in the place of the heading's line, as buttons beside it. */
    head(...children) {
      const heading = content.querySelector("h1");
      const line = h("div", { class: "page-head" }, heading, h("div", { class: "page-actions" }, children));
      content.prepend(line);
    },
    /** Call with `stats` events, and at once when there was one. */
    onStats(listener) {
      let restUntil = 0;
      const draw = (data) => {
        const start = performance.now();
        if (start < restUntil || document.hidden) return;
        listener(data);
        // A page with thousands of topics moves less often, and never takes more than a tenth of the time.
        const end = performance.now();
        restUntil = end + (end - start) * 9;
      };
      live.addEventListener("stats", ({ detail }) => draw(detail), { signal });
      if (live.latest) draw(live.latest);
    },
    /** Call when a topic was created, altered or deleted: {topic, change}. */
    onTopic(listener) {
      live.addEventListener("topic", ({ detail }) => listener(detail), { signal });
    },
    /** Call again and again; the next time only once the one before has ended. */
    every(ms, act) {
      let timer = 0;
      const go = async () => {
        if (!document.hidden) await act();
        if (!signal.aborted) timer = setTimeout(go, ms);
      };
      timer = setTimeout(go, ms);
      signal.addEventListener("abort", () => clearTimeout(timer));
    },
    /** Do something that may fail: what goes wrong is said in words. Returns what it returns, or undefined. */
    async attempt(act) {
      try {
        return await act();
      } catch (error) {
        if (!isGone(error)) failed(error);
        return undefined;
      }
    },
    /** Get something for a part of the page; while it fails, the part says why and offers another try. */
    async load(target, act, wait = RETRY_FIRST_MS) {
      fill(target, h("p", { class: "loading" }, "Loading…"));
      let timer = 0;
      const again = () => {
        clearTimeout(timer);
        return this.load(target, act, Math.min(RETRY_LONGEST_MS, wait * 2));
      };
      try {
        const found = await act();
        if (!signal.aborted) fill(target, found);
      } catch (error) {
        if (isGone(error) || signal.aborted) return;
        fill(target, problem(error, again));
        // What only has to be waited for comes without anybody pressing anything.
        if (error instanceof ApiError && error.retryable) timer = setTimeout(() => !signal.aborted && again(), wait);
      }
    },
    go: (...segments) => {
      location.hash = link(...segments);
    },
    reload: () => route({ again: true }),
  };
}

/** Whether an error says that what the address names is not there. */
function isMissing(error, params) {
  return error instanceof ApiError && error.status === 404
    && ((error.code === "topic_not_found" && params.topic !== undefined) || (error.code === "group_not_found" && params.group !== undefined));
}

/** In the place of a page whose topic or group is not there: say so, with ways back. It is shown when it comes to be. */
function showAbsent(abort, content, params, error) {
  if (abort.signal.aborted) return;
  abort.abort();
  const isGroup = error.code === "group_not_found";
  const words = isGroup
    ? [`${params.topic} has no group ${params.group}. A group comes to be with its first receive, seek or commit.`]
    : [`There is no topic ${params.topic}. It may have been deleted, or its name is another one.`];
  const back = isGroup
    ? [h("a", { href: link("groups") }, "All groups"), " ", h("a", { href: link("topics", params.topic) }, `Topic ${params.topic}`)]
    : [h("a", { href: link("topics") }, "All topics")];
  const heading = content.querySelector("h1");
  fill(content, heading, h("div", { class: "notice warn", role: "alert" }, h("p", {}, words)), h("p", { class: "crumbs" }, back));
  const next = new AbortController();
  leave = () => next.abort();
  const look = () => route({ again: true });
  live.addEventListener("topic", ({ detail }) => detail.topic === params.topic && detail.change === "created" && look(), { signal: next.signal });
  live.addEventListener("stats", ({ detail }) => isGroup && detail.topics[params.topic]?.groups[params.group] && look(), { signal: next.signal });
}

function showMissing() {
  document.title = "Not found · Quiver";
  fill(parts.main, h("div", { class: "page" }, h("h1", {}, "There is no such page"), h("p", {}, h("a", { href: "#/overview" }, "Go to the overview"))));
}

// Whether the broker is there, and who we are.

function showState() {
  if (!parts) return;
  set(parts.state, { "data-state": live.state, title: live.reason });
  setText(parts.state.querySelector(".state-word"), STATE_WORDS[live.state]);
  const isAway = live.state === "reconnecting" || live.state === "offline";
  set(parts.away, { hidden: !isAway });
  const since = live.latest ? ` What you see is from ${time(live.latest.time)}.` : "";
  setText(parts.away, isAway ? `No connection. ${live.reason}${since}` : "");
}

function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

function showIdentity() {
  if (!access.is_required) {
    fill(parts.identity);
    return;
  }
  const topics = access.topics.includes(">") ? "all topics" : access.topics.join(", ");
  fill(
    parts.identity,
    h("span", { class: "tag", title: `Key ${access.id}, scope ${access.scope}, for ${topics}` }, access.scope),
    h("button", { type: "button", class: "quiet", onclick: logout }, "Log out"),
  );
}

function showLogin() {
  if (document.querySelector(".login")) return;
  leave?.();
  live.stop();
  live.history.forget();
  closeDialogs();
  document.title = "Log in · Quiver";
  parts = null;
  const words = session.key ? "The broker does not know this key any more." : "";
  session.key = "";
  fill(document.getElementById("app"), loginView({ words, onDone: enter }));
  document.querySelector(".login input").focus();
}

function logout() {
  session.key = "";
  showLogin();
}

start();
