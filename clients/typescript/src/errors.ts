import type { components } from "./openapi.js";

/** An RFC 9457 problem document. */
export type Problem = components["schemas"]["ProblemOut"];

/** A fault of a request: a JSON Pointer into the body, or `?name` for a query parameter, and a sentence. */
export type Fault = components["schemas"]["FieldError"];

/** The base of all errors of this package. No message holds a key or a secret. */
export class TocsinError extends Error {
  override name = "TocsinError";
}

/** Meanings of answers without a problem document: they come from the Functions host. */
const WITHOUT = new Map([
  [404, "this route does not exist; is the URL the app's?"],
  [500, "the host answered without a reason; it does so to a body that is larger than GET /limits allows"],
]);

/** The service refused the call, after the retries that are safe. */
export class Refused extends TocsinError {
  override name = "Refused";
  /** The reason: `id-conflict`, `already-final`, `not-found`, ...; "" if the answer holds no problem document. */
  readonly code: string;
  /** The faults of a request that is not valid (422). */
  readonly errors: readonly Fault[];
  /**
   * True if the service may have made the change: after a 5xx that does not exclude it, or if an earlier try of the call stayed without an
   * answer.
   */
  readonly uncertain: boolean;

  constructor(
    /** The refused call, such as `GET events/order-17`. */
    readonly call: string,
    /** The HTTP status. 412: the representation has changed since `ifMatch`. */
    readonly status: number,
    /** The problem document, if the answer holds one. */
    readonly problem: Problem | undefined,
    /** Seconds to wait before the next try, if the service gave some. */
    readonly retryAfter: number | undefined,
    doubt: boolean,
  ) {
    const code = problem?.type.split("/").at(-1) ?? "";
    const detail = problem?.detail ?? WITHOUT.get(status) ?? "the answer holds no problem document";
    super(`${status}${code && ` ${code}`}: ${detail} (${call})`);
    this.code = code;
    this.errors = problem?.errors ?? [];
    this.uncertain = doubt || (status >= 500 && problem?.outcome !== "unchanged");
  }
}

/** No answer came: the connection failed, or the time ran out. `sent`: the service may have handled the request. */
export class Unreachable extends TocsinError {
  override name = "Unreachable";
  constructor(call: string, readonly sent: boolean, cause: unknown) {
    super(`no answer (${call}): ${reason(cause)}`, { cause });
  }
}

/** The message of an error, with that of its cause: `fetch` says only that it failed. For a host with several addresses, Node's error has only a code. */
function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  const deeper = cause instanceof Error ? cause.message || String((cause as { code?: unknown }).code ?? "") : "";
  return deeper ? `${error.message}: ${deeper}` : error.message;
}

/** The answer does not come from this API: another server listens at that URL, or a proxy answered. */
export class Unreadable extends TocsinError {
  override name = "Unreadable";
}

/** The request must not be trusted: answer 401. The message gives the reason for your log; do not send it back. */
export class BadDelivery extends TocsinError {
  override name = "BadDelivery";
}
