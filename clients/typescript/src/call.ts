// One call with its retries. A try is repeated after 429, after 409 and 425 with Retry-After, and after 503 with the outcome `unchanged`;
// and after 502, 503, 504 or a lost answer if the call is `repeatable`: if two requests have the effect of one.
import { Refused, Unreachable, Unreadable, type Problem } from "./errors.js";
import { encode } from "./send.js";

export interface TransportOptions {
  /** The app's address, such as https://app.example. */
  url: string;
  /** Most retries of a call. Default: 4. */
  retries?: number;
  /** Longest time for a try, in milliseconds; batches have six times as long. Default: 30,000. */
  timeout?: number;
  /** Let the key travel over plain http:// to another machine. Default: false. */
  allowPlainHttp?: boolean;
  /** Replaces the platform's fetch, for proxies and tests. */
  fetch?: typeof fetch;
}

/** Options of one call. */
export interface CallOptions {
  /** Ends the call early. */
  signal?: AbortSignal;
}

export interface Call extends CallOptions {
  method: "GET" | "PUT" | "POST" | "PATCH" | "DELETE";
  /** Relative to /api/v1/. */
  path: string;
  query?: Readonly<Record<string, unknown>>;
  body?: unknown;
  ifMatch?: string | undefined;
  repeatable?: boolean;
  slow?: boolean;
}

export interface Reply {
  status: number;
  etag: string | undefined;
  /** The JSON of the answer; undefined if it has no body. */
  json: unknown;
}

const FIRST = 0.2;
const LONGEST = 5;
const MOST = 30;
const SLOW = 6;
/** First parts of the paths of operations that do not act for a tenant, or name it in their path: they refuse ?tenant=. */
const OF_NO_TENANT = new Set(["key", "storage", "tenant-overview", "tenants", "work"]);
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);
const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

export class Transport {
  readonly #base: string;
  readonly #authorization: string;
  readonly #tenant: string | undefined;
  readonly #retries: number;
  readonly #timeout: number;
  readonly #fetch: typeof fetch;

  constructor(options: TransportOptions, token: string, tenant?: string) {
    const url = new URL(options.url);
    if (url.protocol !== "https:" && url.protocol !== "http:") throw new TypeError("the URL must begin with https:// or http://");
    if (url.username || url.password || url.search || url.hash) throw new TypeError("the URL must be the app's address alone");
    if (url.protocol === "http:" && !options.allowPlainHttp && !LOOPBACK.test(url.hostname))
      throw new TypeError("plain http:// shows the key to everyone on the way: use https://, or allowPlainHttp");
    if (!/^[\x21-\x7e]+$/.test(token)) throw new TypeError("the key is not one of this service");
    this.#base = `${url.href.replace(/\/+$/, "")}/api/v1/`;
    this.#authorization = `Bearer ${token}`;
    this.#tenant = tenant;
    this.#retries = options.retries ?? 4;
    this.#timeout = options.timeout ?? 30_000;
    // Bound, because a browser's fetch refuses another receiver.
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  /** Make the call and return the successful answer. Throws `Refused`, `Unreachable`, `Unreadable`, and the reason of an aborted signal. */
  async send(call: Call): Promise<Reply> {
    const { repeatable = true, signal } = call;
    const what = `${call.method} ${call.path}`;
    let doubt = false;
    for (let tries = 1; ; tries++) {
      let failure: Refused | Unreachable;
      let again: boolean;
      try {
        const { status, headers, text } = await this.#try(call);
        if (status >= 200 && status < 300)
          return { status, etag: headers.get("etag") ?? undefined, json: text ? parsed(text, what) : undefined };
        const problem = problemOf(text);
        const refused: Refused = new Refused(what, status, problem, seconds(headers.get("retry-after")), doubt);
        const asked = (status === 409 || status === 425) && refused.retryAfter !== undefined;
        const unchanged = status === 429 || asked || problem?.outcome === "unchanged";
        again = unchanged || (repeatable && (status === 502 || status === 503 || status === 504));
        failure = refused;
        doubt ||= refused.uncertain;
      } catch (error) {
        if (error instanceof Unreadable) throw error;
        signal?.throwIfAborted();
        const sent = !NOT_SENT.has(codeOf(error));
        doubt ||= sent;
        failure = new Unreachable(what, doubt, error);
        again = repeatable || !sent;
      }
      const after = failure instanceof Refused ? (failure.retryAfter ?? 0) : 0;
      if (!again || tries > this.#retries || after > MOST) throw failure;
      // Retry-After is a lower bound; chance spreads clients that wait at the same time.
      await pause(after + Math.min(LONGEST, FIRST * 2 ** (tries - 1)) * Math.random(), signal);
    }
  }

  async #try(call: Call): Promise<{ status: number; headers: Headers; text: string }> {
    const url = new URL(this.#base + call.path);
    const tenant = OF_NO_TENANT.has(call.path.replace(/^\/+/, "").split("/")[0]!) ? {} : { tenant: this.#tenant };
    const query: Record<string, unknown> = { ...call.query, ...tenant };
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, value instanceof Date ? value.toISOString() : String(value));
    }
    const headers: Record<string, string> = { authorization: this.#authorization };
    if (call.ifMatch !== undefined) headers["if-match"] = call.ifMatch;
    const init: RequestInit = { method: call.method, headers, redirect: "manual" };
    if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = encode(call.body);
    }
    const ended = new AbortController();
    const abort = (): void => ended.abort(call.signal?.reason);
    call.signal?.throwIfAborted();
    call.signal?.addEventListener("abort", abort);
    const limit = this.#timeout * (call.slow ? SLOW : 1);
    const timer = setTimeout(() => ended.abort(new Error(`no answer within ${limit} ms`)), limit);
    try {
      const answer = await this.#fetch(url, { ...init, signal: ended.signal });
      return { status: answer.status, headers: answer.headers, text: await answer.text() };
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener("abort", abort);
    }
  }
}

function parsed(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Unreadable(`the answer is not JSON (${what}): does the URL name the app?`);
  }
}

function problemOf(text: string): Problem | undefined {
  try {
    const found = JSON.parse(text) as Partial<Problem> | null;
    return typeof found?.type === "string" && typeof found.detail === "string" ? (found as Problem) : undefined;
  } catch {
    return undefined;
  }
}

function seconds(header: string | null): number | undefined {
  return header !== null && /^\d{1,9}$/.test(header) ? Number(header) : undefined;
}

function codeOf(error: unknown): string {
  const cause: unknown = error instanceof Error ? error.cause : undefined;
  return typeof cause === "object" && cause !== null && "code" in cause ? String(cause.code) : "";
}

/** Wait. Rejects with the reason of the signal as soon as it is aborted. */
export function pause(seconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, seconds * 1000);
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end, { once: true });
  });
}
