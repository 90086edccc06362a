import { Transport, type CallOptions, type TransportOptions } from "./call.js";
import { Unreadable } from "./errors.js";
import type { components } from "./openapi.js";

const PATH = "/api/v1/work/";

/** The state of the work after a call. `event`: the event's state. */
export type WorkState = components["schemas"]["WorkStateOut"];

/**
 * The work of one attempt that the receiver has accepted with 202. Each call may be repeated. A refusal with the code `work-over`: the
 * event went on without this attempt, or was cancelled: stop the work.
 */
export class Work {
  constructor(
    /** The attempt's completion URL. It holds no secret, and is not signed: see `at`. */
    readonly url: string,
    /** The attempt's token: keep it out of logs. */
    readonly token: string,
    /** Seconds of silence, from the answer and from each heartbeat, that are a failed attempt. */
    readonly within: number,
  ) {}

  /** The headers of the answer 202 that accepts the event. */
  static readonly later: Readonly<Record<string, string>> = { "tocsin-complete": "later" };

  /** Return the work at this address of the app, such as https://app.example, whatever address the delivery named. */
  at(app: string): Work {
    return new Work(app.replace(/\/+$/, "") + PATH + (this.url.split(PATH)[1] ?? ""), this.token, this.within);
  }

  /** Let the time begin again. */
  heartbeat(options?: Omit<TransportOptions, "url"> & CallOptions): Promise<WorkState> {
    return this.#call("heartbeat", undefined, options);
  }

  /** Complete the event: it is delivered. */
  complete(options?: Omit<TransportOptions, "url"> & CallOptions): Promise<WorkState> {
    return this.#call("complete", undefined, options);
  }

  /** End the attempt as failed: the event is retried by its policy, after `retry_after` at the earliest; or is dead with `retry: false`. */
  fail(failure: Partial<components["schemas"]["FailIn"]> = {}, options?: Omit<TransportOptions, "url"> & CallOptions): Promise<WorkState> {
    return this.#call("fail", { retry: true, ...failure }, options);
  }

  async #call(verb: string, body: unknown, { signal, ...options }: Omit<TransportOptions, "url"> & CallOptions = {}): Promise<WorkState> {
    const [app, rest] = this.url.split(PATH);
    if (!app || !rest) throw new TypeError("the completion URL names no app: use work.at('https://app.example')");
    const transport = new Transport({ retries: 6, ...options, url: app }, this.token);
    const { json } = await transport.send({ method: "POST", path: `work/${rest}/${verb}`, body, ...(signal && { signal }) });
    if (typeof json !== "object" || json === null || !("state" in json)) throw new Unreadable("the answer is not the state of work");
    return json as WorkState;
  }
}
