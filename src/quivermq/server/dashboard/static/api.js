// Calls of the broker. None waits for ever, none outlives the page that made it, and every failure is a
// sentence that can be shown.

/** Where the broker is to a browser: "/", or what a proxy puts before it, such as "/quiver/". */
export const ROOT = new URL("../", import.meta.url).pathname;

/** Where the cluster is whose shard this is, as "/" for "/shards/0/"; null for a broker of none. */
export const CLUSTER = /^(.*\/)shards\/\d+\/$/.exec(ROOT)?.[1] ?? null;

// One name for each broker: two of them may be below one address, and a key is for one of them.
const KEY = ROOT === "/" ? "quiver-key" : `quiver-key ${ROOT}`;
const TIMEOUT_MS = 10_000;

/** What the broker answered instead of what was asked for, or why there is no answer. */
export class ApiError extends Error {
  constructor(message, { status = 0, code = "", retryable = false, fields = {} } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.retryable = retryable;
    this.fields = fields;
  }
}

/** Whether an error only says that its page was left. */
export function isGone(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

// The key is kept until the tab is closed, and never longer.
export const session = {
  get key() {
    return sessionStorage.getItem(KEY) || "";
  },
  set key(text) {
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  },
};

/** Emits "unauthenticated" when the broker wants a key, or another one. */
export const gate = new EventTarget();

/** The headers that every call has. */
export function authorization(key = session.key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** `/v1/topics/a%20b/groups/c` from parts that may hold anything. */
export function path(...parts) {
  return `${ROOT}v1/${parts.map(encodeURIComponent).join("/")}`;
}

/**
 * Make a call. Returns what JSON holds, the text of another answer, or null for 204.
 * Throws ApiError, or an AbortError once `signal` says that nobody waits any more.
 */
export async function call(method, target, { body, query, signal, timeoutMs = TIMEOUT_MS, key, headers } = {}) {
  const asked = query ? `${target}?${new URLSearchParams(given(query))}` : target;
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), timeoutMs);
  const options = {
    method,
    headers: { ...authorization(key), ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, timeout.signal]) : timeout.signal,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  };
  let response;
  let answer;
  try {
    response = await fetch(asked, options);
    answer = await read(response);
  } catch (error) {
    throw wordsFor(error, signal, timeout.signal, timeoutMs);
  } finally {
    clearTimeout(timer);
  }
  if (response.ok) return answer;
  const failure = fromAnswer(response, answer);
  if (failure.status === 401 && key === undefined) gate.dispatchEvent(new Event("unauthenticated"));
  throw failure;
}

/** The calls as a page makes them: all of them end when the page is left. onfail(error): for what could not be got. */
export function apiFor(signal, onfail = () => undefined) {
  const make = (method) => async (target, options = {}) => {
    try {
      return await call(method, target, { signal, ...options });
    } catch (error) {
      if (method === "GET" && !isGone(error)) onfail(error);
      throw error;
    }
  };
  return { get: make("GET"), post: make("POST"), put: make("PUT"), patch: make("PATCH"), delete: make("DELETE") };
}

function given(query) {
  return Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
}

async function read(response) {
  if (response.status === 204) return null;
  const type = response.headers.get("Content-Type") || "";
  const text = await response.text();
  if (!type.startsWith("application/json")) return text;
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError("The broker's answer cannot be read: perhaps something between here and there changed it.");
  }
}

function fromAnswer(response, answer) {
  const told = (answer && answer.error) || {};
  const { code = "", message, retryable = false, ...fields } = told;
  const words = message || `The broker answered ${response.status} ${response.statusText}.`;
  return new ApiError(words, { status: response.status, code, retryable, fields });
}

function wordsFor(error, signal, timeout, timeoutMs) {
  if (error instanceof ApiError) return error;
  if (signal?.aborted) return new DOMException("the page was left", "AbortError");
  if (timeout.aborted) {
    return new ApiError(
      `The broker did not answer within ${Math.round(timeoutMs / 1000)} s. It may be busy; try again.`,
      { code: "timeout", retryable: true },
    );
  }
  return new ApiError("The broker cannot be reached: is it running?", { code: "unreachable", retryable: true });
}
