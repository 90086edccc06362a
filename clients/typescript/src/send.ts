// Functions that the operations share: they read lists page by page, and answers as documents.
import type { Call, CallOptions, Reply } from "./call.js";
import { Unreadable } from "./errors.js";
import type { components } from "./openapi.js";

export type Schemas = components["schemas"];
export type Send = (call: Call) => Promise<Reply>;
/** An answer with its entity tag, for `ifMatch`. */
export type Tagged<T> = T & { etag?: string };

/** Options of a change that is made only if the representation still has this entity tag. */
export interface Matching extends CallOptions {
  ifMatch?: string | undefined;
}

const PAGE = 1000;

export async function* pages<T>(send: Send, path: string, filter: object, options?: CallOptions): AsyncGenerator<T, void, undefined> {
  for (let cursor: string | undefined; ; ) {
    const reply = await send({ method: "GET", path, query: { limit: PAGE, ...filter, cursor }, ...options });
    const { items, next } = document<{ items: T[]; next: string | null }>(reply);
    yield* items;
    if (next === null) return;
    cursor = next;
  }
}

/** The JSON object of an answer, with its entity tag if it has one. */
export function document<T>({ status, json, etag }: Reply): T {
  // A 204 of a cancelled event, whose callers read nothing.
  if (status === 204 && json === undefined) return undefined as T;
  if (typeof json !== "object" || json === null) throw new Unreadable(`status ${status}, but the body does not fit this API`);
  return (etag === undefined ? json : { ...json, etag }) as T;
}

/** The value as JSON. Throws TypeError for bytes, which JSON.stringify would make an object of numbers. */
export function encode(value: unknown): string {
  return JSON.stringify(value, function (this: Record<string, unknown>, name: string, each: unknown): unknown {
    // `each` is the result of toJSON, which Node's buffers have; this is the value before it.
    const given = this[name];
    if (ArrayBuffer.isView(given) || given instanceof ArrayBuffer)
      throw new TypeError(`${name || "the body"} is bytes: give the text of their base64, and content_type`);
    return each;
  });
}

// Not crypto.randomUUID: a browser has it only on secure pages.
export function random(bytes: number): string {
  return [...crypto.getRandomValues(new Uint8Array(bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function name(id: string): string {
  if (!/^[A-Za-z0-9_:@~.-]{1,200}$/.test(id) || id === "." || id === "..")
    throw new TypeError("an id has 1 to 200 characters of A-Z a-z 0-9 _ - : @ ~");
  return id;
}
