// Deliveries in a receiver: verified with WebCrypto, as Standard Webhooks describes it.
import { BadDelivery } from "./errors.js";
import { Work } from "./work.js";

/** One attempt to deliver an event. The same `id` may arrive more than once: record the ids that you have processed. */
export interface Delivery<Payload = unknown> {
  /** Id of the event, the same for every attempt. */
  id: string;
  due: Date;
  /** Time at which the attempt began. */
  fired: Date;
  /** 1 for the first attempt. */
  attempt: number;
  lateMs: number;
  tenant: string;
  channel: string;
  /**
   * The payload, decoded from JSON; undefined for a request without a body, and the bytes for another `contentType`. Its type is a promise of
   * yours, which nothing checks.
   */
  payload: Payload;
  /** The type of the body. It is not signed. */
  contentType: string;
  /** The payload's bytes as they arrived: JSON.parse rounds numbers beyond 2^53. */
  body: Uint8Array;
  /** The way to complete the event later; undefined unless the channel allows long work. */
  work?: Work;
}

export interface VerifyOptions {
  /** Seconds by which the request may be older or newer than the clock. Default: 300. */
  tolerance?: number;
  /** The clock, in milliseconds. Default: Date.now. */
  now?: () => number;
}

/** Headers of a request: of fetch, of node, or a plain object; names in any case. */
export type DeliveryHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/** A sender needs two signatures; a stranger must not buy more of our time. */
const MOST_SIGNATURES = 16;
const JSON_TYPE = "application/json";
const SIGNATURE = /^[A-Za-z0-9+/]{43}=$/;
const SOURCE = /^\/tenants\/([^/]+)\/channels\/([^/]+)$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/**
 * Return the delivery in a request. Rejects with `BadDelivery` if the request must not be trusted: answer 401.
 *
 * `body`: the bytes as they arrived, not decoded. `secret`: the channel's `whsec_...`, or several while it is rotated. Only the id, the
 * second and the body are signed: trust the other headers as far as you trust the TLS connection. Rejects with TypeError for a malformed
 * secret and for a body that is not bytes.
 */
export async function verify<Payload = unknown>(
  headers: DeliveryHeaders,
  body: Uint8Array | ArrayBuffer,
  secret: string | readonly string[],
  { tolerance = 300, now = Date.now }: VerifyOptions = {},
): Promise<Delivery<Payload>> {
  // Not instanceof: test runners and workers have classes of their own.
  if (!ArrayBuffer.isView(body) && Object.prototype.toString.call(body) !== "[object ArrayBuffer]")
    throw new TypeError("verify needs the body's bytes as they arrived: text that was decoded and encoded again may differ");
  const bytes = new Uint8Array(body);
  const keys = await Promise.all((typeof secret === "string" ? [secret] : secret).map(importSecret));
  if (keys.length === 0) throw new TypeError("no secret given");
  const found = lowered(headers);
  const [id, stamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => found.get(name));
  if (!id || !stamp || !signatures) throw new BadDelivery("the request is not signed: it lacks a webhook- header");
  const signed = joined(`${id}.${stamp}.`, bytes);
  const inTime = /^\d{1,12}$/.test(stamp) && Math.abs(now() / 1000 - Number(stamp)) <= tolerance;
  if (!inTime || !(await isSigned(keys, signatures, signed)))
    throw new BadDelivery("the signature does not match the body, the secret or the time");
  return read<Payload>(found, id, bytes);
}

async function isSigned(keys: readonly CryptoKey[], signatures: string, signed: Uint8Array<ArrayBuffer>): Promise<boolean> {
  const offered = signatures
    .split(" ")
    .slice(0, MOST_SIGNATURES)
    .filter((part) => part.startsWith("v1,"))
    .map((part) => part.slice(3))
    // Another spelling of the same bytes is not what the service sends.
    .filter((text) => SIGNATURE.test(text) && btoa(atob(text)) === text)
    .map(ofBase64);
  // WebCrypto compares in constant time. All are tried, so that the time does not tell which secret is in use.
  const tries = keys.flatMap((key) => offered.map((signature) => crypto.subtle.verify("HMAC", key, signature, signed)));
  return (await Promise.all(tries)).includes(true);
}

async function importSecret(secret: string): Promise<CryptoKey> {
  const text = secret.startsWith("whsec_") ? secret.slice(6) : secret;
  const padded = text + "=".repeat((4 - (text.length % 4)) % 4);
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$/.test(padded))
    throw new TypeError("not a webhook secret: whsec_ and base64");
  return crypto.subtle.importKey("raw", ofBase64(padded), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

function ofBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

function joined(head: string, body: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const start = new TextEncoder().encode(head);
  const whole = new Uint8Array(start.length + body.length);
  whole.set(start);
  whole.set(body, start.length);
  return whole;
}

function lowered(headers: DeliveryHeaders): Map<string, string> {
  const found = new Map<string, string>();
  const listed = Symbol.iterator in headers ? (headers as Headers) : undefined;
  const pairs = listed ?? Object.entries(headers as Record<string, string | string[] | undefined>);
  for (const [name, value] of pairs) {
    if (value !== undefined) found.set(name.toLowerCase(), typeof value === "string" ? value : value.join(", "));
  }
  return found;
}

function read<Payload>(headers: ReadonlyMap<string, string>, signedId: string, body: Uint8Array<ArrayBuffer>): Delivery<Payload> {
  const [, tenant, channel] = SOURCE.exec(headers.get("ce-source") ?? "") ?? [];
  const due = time(headers.get("ce-tocsindue"));
  const fired = time(headers.get("ce-tocsinfired"));
  const attempt = whole(headers.get("ce-tocsinattempt"));
  const lateMs = whole(headers.get("ce-tocsinlatems"));
  // Only webhook-id is signed: another ce-id would let an old delivery pass for a new event.
  const same = headers.get("ce-id") === signedId;
  if (!same || !tenant || !channel || !due || !fired || attempt === undefined || lateMs === undefined)
    throw new BadDelivery("the request is signed but is not a Tocsin delivery: a ce- header is missing or malformed");
  const contentType = headers.get("content-type") ?? JSON_TYPE;
  const payload = payloadOf<Payload>(body, contentType);
  const delivery: Delivery<Payload> = { id: signedId, due, fired, attempt, lateMs, tenant, channel, payload, contentType, body };
  const [url, token] = [headers.get("tocsin-completion-url"), headers.get("tocsin-completion-token")];
  if (url && token) delivery.work = new Work(url, token, whole(headers.get("tocsin-completion-within")) ?? 0);
  return delivery;
}

function payloadOf<Payload>(body: Uint8Array<ArrayBuffer>, contentType: string): Payload {
  if (!["", JSON_TYPE].includes((contentType.split(";")[0] ?? "").trim().toLowerCase())) return body as Payload;
  // Requests of the methods GET and DELETE may have none.
  if (body.length === 0) return undefined as Payload;
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body)) as Payload;
  } catch {
    throw new BadDelivery("the request is signed but is not a Tocsin delivery: the body is not JSON");
  }
}

function time(text: string | undefined): Date | undefined {
  const found = text !== undefined && TIME.test(text) ? new Date(text) : undefined;
  return found === undefined || Number.isNaN(found.getTime()) ? undefined : found;
}

function whole(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
