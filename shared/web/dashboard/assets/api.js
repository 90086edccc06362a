// Calls of the API. The key is kept in sessionStorage alone, and sent to this origin alone.

const ROOT = new URL("../", import.meta.url);
const KEY = "tocsin.key";
const TIMEOUT = 30_000;
const TRUSTED = 5000; // ms by which this device's clock may differ and still be used: `Date` has whole seconds, and answers take time

/** A call that failed: `status` 0 when there was no answer. `title`, `detail`: as the API words it. `after`: ms to wait before the next. */
export class Refused extends Error {
  constructor(status, title, detail, body = {}, after = 0) {
    super(detail || title);
    Object.assign(this, { status, title, detail, body, after, errors: Array.isArray(body.errors) ? body.errors : [] });
  }

  /** The API's code: the end of the problem's type. */
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
/** Have it told when the key that is kept is no longer valid. */
export function whenLost(tell) {
  lost = tell;
}

let ahead = 0;
/** By how many ms this device's clock is ahead of the service's; 0 while they agree. */
export const skew = () => ahead;
/** The service's time, in ms since 1970: a device whose clock is wrong shows the right minutes. */
export const present = () => Date.now() - ahead;

function heard(date) {
  const told = Date.parse(date ?? "");
  if (Number.isNaN(told)) return;
  const found = Date.now() - (told + 500);
  ahead = Math.abs(found) > TRUSTED ? found : 0;
}

/** One call. `path` is relative to /api/, `query` an object; answers data, or text. Throws `Refused`. */
export async function call(method, path, { query = {}, body, signal, token = key.get(), timeout = TIMEOUT } = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  const headers = { accept: "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const signals = [AbortSignal.timeout(timeout), ...(signal ? [signal] : [])];
  let answer, raw;
  try {
    answer = await fetch(url, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.any(signals),
      cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
    });
    raw = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    const late = error.name === "TimeoutError";
    throw new Refused(0, late ? "No answer in time" : "The service does not answer", late ? `it took longer than ${timeout / 1000} s` : "it is down, or the network is");
  }
  heard(answer.headers.get("date"));
  const kind = answer.headers.get("content-type") ?? "";
  let data = raw;
  if (kind.includes("json") && raw) {
    try { data = JSON.parse(raw); } catch { throw new Refused(answer.status, "Not an answer of this service", "what came is not JSON"); }
  } else if (answer.ok && answer.status !== 204 && !kind.startsWith("text/plain")) {
    // A proxy's page, or an app that is being replaced.
    throw new Refused(answer.status, "Not an answer of this service", kind ? `what came is ${kind}` : "nothing came");
  }
  if (!answer.ok) {
    const told = typeof data === "object" && data ? data : {};
    if (answer.status === 401 && token && token === key.get()) lost();
    throw new Refused(answer.status, told.title ?? `Status ${answer.status}`, told.detail ?? "", told, 1000 * (Number(answer.headers.get("retry-after")) || 0));
  }
  return data;
}

/** Up to `most` items of a list, page by page; `more` tells whether there are others. */
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

export const enc = encodeURIComponent;
