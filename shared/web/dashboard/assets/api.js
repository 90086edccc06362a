// Calls of the API. The key is stored only in sessionStorage and sent only to this origin.

const ROOT = new URL("../", import.meta.url);
const KEY = "tocsin.key";
const TIMEOUT = 30_000;
const TRUSTED = 5000; // ms; a smaller difference between the clocks is ignored: `Date` has whole seconds, and answers take time

/** A failed call: `status` is 0 without an answer; `title` and `detail` come from the API; `after`: ms to wait before the next call. */
export class Refused extends Error {
  constructor(status, title, detail, body = {}, after = 0) {
    super(detail || title);
    Object.assign(this, { status, title, detail, body, after, advice: "", errors: Array.isArray(body.errors) ? body.errors : [] });
  }

  /** True if the call may have been carried out: no answer has come, or one of a gateway or of a fault. */
  get unsure() {
    return this.status === 0 || this.status >= 500;
  }

  /** The problem's code: the end of its type. */
  get code() {
    return String(this.body.type ?? "").split("/").at(-1);
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

let lost = () => {};
/** Set the function that is called when the stored key is no longer valid. */
export function whenLost(callback) {
  lost = callback;
}

let ahead = 0;
/** Return by how many ms this device's clock is ahead of the service's clock; 0 while they agree. */
export const skew = () => ahead;
/** Return the service's time in ms since 1970, so that a device with a wrong clock shows the right minutes. */
export const present = () => Date.now() - ahead;

function compareClock(date) {
  const theirs = Date.parse(date ?? "");
  if (Number.isNaN(theirs)) return;
  const found = Date.now() - (theirs + 500);
  ahead = Math.abs(found) > TRUSTED ? found : 0;
}

/**
 * Make a call. `path` is relative to /api/, `query` is an object. Return data or text. Throws `Refused`.
 * Nothing is sent after the key was forgotten; `token: ""` makes a call without a key. `raw`: a body that is JSON already. `match`: the entity tag that must be stored; `creates`: nothing may be stored there yet.
 * `whole`: return `{data, text, status, etag}`.
 */
export async function call(method, path, { query = {}, body, raw: sent = body === undefined ? undefined : JSON.stringify(body), match, creates = false, whole = false, signal, token = key.get(), timeout = TIMEOUT } = {}) {
  if (token === null) throw new Refused(401, "There is no key");
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  const headers = { accept: "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  if (sent !== undefined) headers["content-type"] = "application/json";
  if (match) headers["if-match"] = match;
  if (creates) headers["if-none-match"] = "*";
  const signals = [AbortSignal.timeout(timeout), ...(signal ? [signal] : [])];
  let answer, raw;
  try {
    answer = await fetch(url, {
      method, headers, body: sent, signal: AbortSignal.any(signals),
      cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
    });
    raw = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    const late = error.name === "TimeoutError";
    throw new Refused(0, late ? "Timeout" : "The service does not answer", late ? `No answer within ${timeout / 1000} s` : "The service or the network is down");
  }
  compareClock(answer.headers.get("date"));
  const kind = answer.headers.get("content-type") ?? "";
  let data = raw;
  if (kind.includes("json") && raw) {
    try { data = JSON.parse(raw); } catch { throw new Refused(answer.status, "This is not an answer of Tocsin", "The body is not JSON"); }
  } else if (answer.ok && answer.status !== 204 && !kind.startsWith("text/plain")) {
    // The page of a proxy, or of an app that is being deployed.
    throw new Refused(answer.status, "This is not an answer of Tocsin", kind ? `The media type is ${kind}` : "The body is empty");
  }
  if (!answer.ok) {
    const problem = typeof data === "object" && data ? data : {};
    if (answer.status === 401 && token && token === key.get()) lost(problem.detail ?? "");
    throw new Refused(answer.status, problem.title ?? `Status ${answer.status}`, problem.detail ?? "", problem, 1000 * (Number(answer.headers.get("retry-after")) || 0));
  }
  return whole ? { data, text: raw, status: answer.status, etag: answer.headers.get("etag") } : data;
}

/** Return up to `most` items of a list, page by page; `more` is true if the list has further items. */
export async function all(path, query, signal, most = 2000, pages = 10) {
  const items = [];
  let cursor = null;
  do {
    const page = await call("GET", path, { query: { ...query, limit: Math.min(1000, most), cursor }, signal });
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < most && --pages > 0);
  return { items: items.slice(0, most), more: Boolean(cursor) || items.length > most };
}

/** Return the first `most` items of an overview, page by page, with the figures of its last page; `next` is null if these are all. */
export async function overview(path, query, signal, most) {
  const items = [];
  let page = { next: null };
  do {
    page = await call("GET", path, { query: { ...query, limit: Math.min(1000, most - items.length), cursor: page.next }, signal });
    items.push(...page.items);
  } while (page.next && items.length < most);
  return { ...page, items };
}

/** Return 16 random characters: an id that no other call has. */
export const newId = () => [...crypto.getRandomValues(new Uint8Array(8))].map((each) => each.toString(16).padStart(2, "0")).join("");

/** Wait for a call that has an id, and is harmless to repeat with it: a failure without an answer says so. */
export async function repeatable(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Refused && error.unsure) error.advice = "It may have been done nevertheless. Press again: it is not done twice.";
    throw error;
  }
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export const enc = encodeURIComponent;
