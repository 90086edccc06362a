// Calls of the API. The key is kept in sessionStorage alone, and sent to this origin alone.

const ROOT = new URL("../", import.meta.url);
const KEY = "tocsin.key";
const TIMEOUT = 30_000;

/** A call that failed: `status` 0 when there was no answer. `title`, `detail`: as the API words it. */
export class Refused extends Error {
  constructor(status, title, detail, errors = [], body = null) {
    super(detail || title);
    Object.assign(this, { status, title, detail, errors, body });
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** One call. `path` is relative to /api/, `query` an object; answers data, or text. Throws `Refused`. */
export async function call(method, path, { query = {}, body, signal, token = key.get() } = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  const headers = { accept: "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const signals = [AbortSignal.timeout(TIMEOUT), ...(signal ? [signal] : [])];
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
    throw new Refused(0, late ? "No answer in time" : "The service does not answer", late ? "It took longer than 30 s." : "It is down, or the network is.");
  }
  const kind = answer.headers.get("content-type") ?? "";
  let data = raw;
  if (kind.includes("json") && raw) {
    try { data = JSON.parse(raw); } catch { throw new Refused(answer.status, "Not an answer of this service", "What came is not JSON."); }
  }
  if (!answer.ok) {
    const told = typeof data === "object" && data ? data : {};
    throw new Refused(answer.status, told.title ?? `Status ${answer.status}`, told.detail ?? "", told.errors ?? [], told);
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
