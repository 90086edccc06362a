import { pause, Transport, type Call, type CallOptions, type Reply, type TransportOptions } from "./call.js";
import { Refused, Unreadable } from "./errors.js";
import type { operations } from "./openapi.js";
import { Calendars, Channels, Fleets, Keys, Tenants, changeStored, type Changes } from "./resources.js";
import { document, encode, name, pages, random, type Matching, type Schemas, type Send, type Tagged } from "./send.js";

type Dates<T> = { [K in keyof T]: K extends "due" | "start" | "end" | "from" | "to" ? T[K] | Date : T[K] };
type Query<Operation extends keyof operations> = Omit<NonNullable<operations[Operation]["parameters"]["query"]>, "tenant" | "cursor">;
export type Event = Schemas["EventOut"];
export type EventState = Schemas["EventState"];
export type Schedule = Schemas["ScheduleOut"];
export type Batch = Schemas["BatchOut"];
export type Stats = Schemas["StatsOut"];
export type BulkJob = Schemas["BulkOut"];
export type Heartbeat = Schemas["HeartbeatOut"];
export type Fanout = Schemas["FanoutOut"];
export type FanoutReport = Schemas["FanoutReport"];

type Planned<T> = Omit<T, "due" | "delay"> & ({ due: string | Date; delay?: never } | { delay: string; due?: never });
/** An event with exactly one of `due` and `delay`, an ISO 8601 duration such as PT30S. */
export type NewEvent = Planned<Omit<Schemas["EventIn"], "channels">>;
/** An event for each of `channels`. */
export type NewFanout = Planned<Omit<Schemas["EventIn"], "channel" | "channels">> & { channels: string[] };
export type EventChange = Dates<Schemas["EventPatch"]>;
export type NewSchedule = Dates<Schemas["ScheduleIn"]>;
export type Lock = Schemas["LockOut"];
export type LockRequest = Schemas["LockIn"];
export type LockAnswer = Schemas["LockHeldOut"] | Schemas["LockWaitingOut"];
export type EventFilter = Dates<Query<"events_list">>;
export type DeadFilter = Dates<Query<"dead_letters_list">>;

export interface TocsinOptions extends TransportOptions {
  /** A key of the tenant, or an admin key with `tenant`. */
  key: string;
  /** Tenant to act for. Needed with an admin key. */
  tenant?: string;
}

const BATCH_EVENTS = 10_000;
/** Bytes of a batch that every app accepts. Fewer are sent without asking for its limit. */
const SURE_BYTES = 1_000_000;

/**
 * The API of one Tocsin app, for one key. Each operation throws `Refused`, `Unreachable` or `Unreadable`.
 *
 *     const tocsin = new Tocsin({ url: "https://app.example", key });
 *     const event = await tocsin.events.create({ payload: { order: 17 }, delay: "PT30M" });
 *     await tocsin.events.cancel(event.id);
 */
export class Tocsin {
  readonly #transport: Transport;
  readonly events: Events;
  readonly deadLetters: DeadLetters;
  readonly schedules: Schedules;
  readonly calendars: Calendars;
  /** Channels of the client's tenant. Needs an admin key, as `tenants` and `keys` do. */
  readonly channels: Channels;
  readonly tenants: Tenants;
  readonly keys: Keys;
  readonly fleets: Fleets;
  readonly heartbeats: Heartbeats;
  readonly jobs: Jobs;
  readonly locks: Locks;

  constructor({ key, tenant, ...transport }: TocsinOptions) {
    this.#transport = new Transport(transport, key, tenant);
    const send: Send = (call) => this.#transport.send(call);
    this.events = new Events(send);
    this.deadLetters = new DeadLetters(send);
    this.schedules = new Schedules(send);
    this.calendars = new Calendars(send);
    this.channels = new Channels(send, tenant);
    this.tenants = new Tenants(send);
    this.keys = new Keys(send, tenant);
    this.fleets = new Fleets(send);
    this.heartbeats = new Heartbeats(send);
    this.jobs = new Jobs(send);
    this.locks = new Locks(send);
  }

  /** Return the numbers of the tenant's events by state. */
  async stats(options?: CallOptions): Promise<Stats> {
    return document<Stats>(await this.#transport.send({ method: "GET", path: "stats", ...options }));
  }

  /** Call any operation. `path` follows /api/v1/ and may have a query. Only GET and PUT are repeated after a lost answer. */
  async call<T = unknown>(method: Call["method"], path: string, body?: unknown, options?: Matching): Promise<T> {
    const [at = "", ...query] = path.split("?");
    const repeatable = method === "GET" || method === "PUT";
    const parameters = Object.fromEntries(new URLSearchParams(query.join("?")));
    const call: Call = { method, path: at, query: parameters, body, repeatable, ...options };
    return (await this.#transport.send(call)).json as T;
  }
}

/** Warn that a request has scheduled nothing, because an event with its id has ended without a delivery. */
function warnOfEnded(events: readonly Event[]): void {
  for (const { id, state } of events.filter((event) => ["dead", "cancelled", "lapsed"].includes(event.state)))
    console.warn(`The event ${id} exists and is ${state}: nothing was scheduled. Use a new id, or on_conflict "error" or "redrive".`);
}

export class Events {
  readonly #send: Send;
  constructor(send: Send) {
    this.#send = send;
  }

  /** Schedule an event. Without `id` the client makes one, so that a retry creates no double; not for durability `fast`. */
  create(event: NewFanout, options?: CallOptions): Promise<Fanout>;
  create(event: NewEvent, options?: CallOptions): Promise<Tagged<Event>>;
  async create(event: NewEvent | NewFanout, options?: CallOptions): Promise<Tagged<Event> | Fanout> {
    const body = withId(event);
    const reply = await this.#send({ method: "POST", path: "events", body, repeatable: body.id !== undefined, ...options });
    const made = document<Tagged<Event> | Fanout>(reply);
    if (reply.status === 200) warnOfEnded("events" in made ? made.events : [made]);
    return made;
  }

  /**
   * Schedule any number of events; a refused one does not stop the others. Events that were refused for load are sent again if they have
   * ids or were not stored for certain.
   * `makeIds` gives an id to each event without one, so that a chunk is repeated after a lost answer. If a chunk fails, its error is thrown
   * and the chunks before it stay accepted.
   */
  async batch(events: readonly NewEvent[], { makeIds = false, ...options }: CallOptions & { makeIds?: boolean } = {}): Promise<Batch> {
    const results: Schemas["BatchLine"][] = [];
    const given = makeIds ? events.map(withId) : events;
    const sizes = given.map((event) => new TextEncoder().encode(encode(event)).length + 1);
    const total = sizes.reduce((sum, size) => sum + size, 1);
    const most = total <= SURE_BYTES ? total : await this.#batchBytes(options);
    for (const chunk of chunks(given, sizes, most)) {
      const size = sizes[chunk.first]! + 1;
      const done = size > most ? [tooLarge(size, most)] : await this.#chunk(chunk.events, options);
      results.push(...done.map((line) => ({ ...line, index: line.index + chunk.first })));
    }
    const accepted = results.filter((line) => line.status < 300).length;
    return { accepted, rejected: results.length - accepted, results };
  }

  async #batchBytes(options: CallOptions): Promise<number> {
    return document<Schemas["SizesOut"]>(await this.#send({ method: "GET", path: "limits", ...options })).batch_bytes;
  }

  async #chunk(events: readonly NewEvent[], options: CallOptions): Promise<Schemas["BatchLine"][]> {
    const done = new Map<number, Schemas["BatchLine"]>();
    let pending = events.map((_, index) => index);
    for (let rounds = 0; pending.length > 0 && rounds < 5; rounds++) {
      const body = pending.map((index) => events[index]);
      const repeatable = body.every((event) => event?.id !== undefined);
      let reply: Reply;
      try {
        reply = await this.#send({ method: "POST", path: "events/batch", body, repeatable, slow: true, ...options });
      } catch (error) {
        // Each of these lines already has its own refusal as a result.
        if (rounds > 0 && error instanceof Refused && error.status === 429 && !error.uncertain) break;
        throw error;
      }
      const { results } = document<Batch>(reply);
      if (results.length !== pending.length) throw new Unreadable(`${results.length} results for ${pending.length} events`);
      const again: number[] = [];
      results.forEach((line, at) => {
        const index = pending[at]!;
        done.set(index, { ...line, index });
        const safe = events[index]?.id !== undefined || line.problem?.outcome === "unchanged";
        if (line.status === 429 || (line.status === 503 && safe)) again.push(index);
      });
      pending = again;
      if (pending.length > 0 && rounds < 4) await pause(0.2 * 2 ** rounds * (0.5 + Math.random() / 2), options.signal);
    }
    return events.map((_, index) => done.get(index)!);
  }

  async get(id: string, options?: CallOptions): Promise<Tagged<Event>> {
    return document(await this.#send({ method: "GET", path: `events/${name(id)}`, ...options }));
  }

  /** Return a fan-out, under the id that `create` has answered. */
  async getFanout(id: string, options?: CallOptions): Promise<Fanout> {
    return document(await this.#send({ method: "GET", path: `events/${name(id)}`, ...options }));
  }

  /** Yield events, unordered, page by page. An event that ends meanwhile may be yielded twice. */
  list(filter: EventFilter = {}, options?: CallOptions): AsyncGenerator<Event, void, undefined> {
    return pages<Event>(this.#send, "events", filter, options);
  }

  /** Change or reschedule an event that is not being delivered. */
  async change(id: string, change: EventChange, options?: Matching): Promise<Tagged<Event>> {
    const call: Call = { method: "PATCH", path: `events/${name(id)}`, body: change, ...options, repeatable: !options?.ifMatch };
    return document(await this.#send(call));
  }

  /** Cancel the event. After this, no delivery of it starts. Of a fan-out it returns the report, which may list events that went on. */
  async cancel(id: string, options?: Matching): Promise<FanoutReport | undefined> {
    const call: Call = { method: "DELETE", path: `events/${name(id)}`, ...options };
    const codes = ["already-final", "precondition-failed"];
    const found = await this.#recovered<FanoutReport | undefined>(call, id, codes, ["cancelled"]);
    return found && "results" in found ? found : undefined;
  }

  /** Deliver the event now. */
  async fire(id: string, options?: Matching): Promise<Tagged<Event>> {
    const call: Call = { method: "POST", path: `events/${name(id)}/fire`, ...options };
    return this.#recovered(call, id, ["already-firing", "already-final"], ["firing", "working", "retrying", "delivered", "dead"]);
  }

  /** Deliver a dead event again. */
  async redrive(id: string, options?: CallOptions): Promise<Tagged<Event>> {
    const call: Call = { method: "POST", path: `events/${name(id)}/redrive`, ...options };
    return this.#recovered(call, id, ["not-dead"], ["scheduled", "firing", "working", "retrying", "delivered", "lapsed"]);
  }

  // After a lost answer, the service may refuse the repeated call because it had accepted the first try.
  async #recovered<T = never>(
    call: Call,
    id: string,
    codes: readonly string[],
    states: readonly EventState[],
  ): Promise<T | Tagged<Event>> {
    try {
      return document<T | Tagged<Event>>(await this.#send(call));
    } catch (error) {
      if (!(error instanceof Refused && error.uncertain && codes.includes(error.code))) throw error;
      const event = await this.get(id, call.signal && { signal: call.signal });
      if (!states.includes(event.state)) throw error;
      return event;
    }
  }
}

export class DeadLetters {
  readonly #send: Send;
  constructor(send: Send) {
    this.#send = send;
  }

  /** Yield the dead events, which could not be delivered. */
  list(filter: DeadFilter = {}, options?: CallOptions): AsyncGenerator<Event, void, undefined> {
    return pages<Event>(this.#send, "dead-letters", filter, options);
  }

  /** Redrive all dead events that match, and return their number. After a lost answer it counts only the last try's. */
  async redrive(filter: Dates<Schemas["RedriveIn"]> = {}, options?: CallOptions): Promise<number> {
    const call: Call = { method: "POST", path: "dead-letters/redrive", body: filter, slow: true, ...options };
    return document<Schemas["RedriveOut"]>(await this.#send(call)).redriven;
  }
}

export class Schedules {
  readonly #send: Send;
  constructor(send: Send) {
    this.#send = send;
  }

  /** Create or replace the schedule. */
  async put(id: string, schedule: NewSchedule, options?: Matching): Promise<Tagged<Schedule>> {
    const call: Call = { method: "PUT", path: `schedules/${name(id)}`, body: schedule, ...options, repeatable: !options?.ifMatch };
    return document(await this.#send(call));
  }

  /** Change the named fields and keep all others; null resets one. */
  async set(id: string, changes: Changes<NewSchedule>, options?: CallOptions): Promise<Tagged<Schedule>> {
    return changeStored(this.#send, "schedule", `schedules/${name(id)}`, changes, options);
  }

  async get(id: string, options?: CallOptions): Promise<Tagged<Schedule>> {
    return document(await this.#send({ method: "GET", path: `schedules/${name(id)}`, ...options }));
  }

  list(options?: CallOptions): AsyncGenerator<Schedule, void, undefined> {
    return pages<Schedule>(this.#send, "schedules", {}, options);
  }

  /** Delete the schedule. Its coming occurrences do not fire. keepOverdue: those that are overdue do, also if a sweep is late. */
  async delete(id: string, { keepOverdue = false, ...options }: Matching & { keepOverdue?: boolean } = {}): Promise<void> {
    const query = keepOverdue ? { overdue: "keep" } : {};
    await this.#send({ method: "DELETE", path: `schedules/${name(id)}`, query, repeatable: false, ...options });
  }

  /** Pause the schedule until `resume`. Occurrences missed meanwhile never fire. */
  async pause(id: string, options?: CallOptions): Promise<Tagged<Schedule>> {
    return document(await this.#send({ method: "POST", path: `schedules/${name(id)}/pause`, ...options }));
  }

  async resume(id: string, options?: CallOptions): Promise<Tagged<Schedule>> {
    return document(await this.#send({ method: "POST", path: `schedules/${name(id)}/resume`, ...options }));
  }

  /** Fire the schedule once more, now. */
  async trigger(id: string, options?: CallOptions): Promise<Event> {
    // With an id, two calls have the effect of one.
    return document(await this.#send({ method: "POST", path: `schedules/${name(id)}/trigger`, body: { id: random(8) }, ...options }));
  }

  /** Return the next `n` occurrences. */
  async preview(id: string, n = 10, options?: CallOptions): Promise<Schemas["OccurrenceOut"][]> {
    const call: Call = { method: "GET", path: `schedules/${name(id)}/preview`, query: { n }, ...options };
    return document<Schemas["PreviewOut"]>(await this.#send(call)).items;
  }

  /** Create an event now for each occurrence from `from` up to, not including, `to`: at most 1,000. */
  async backfill(id: string, range: Dates<Schemas["BackfillIn"]>, options?: CallOptions): Promise<Schemas["BackfillOut"]> {
    // With a name, two calls have the effect of one.
    const body = { id: `c-${random(7)}`, ...range };
    return document(await this.#send({ method: "POST", path: `schedules/${name(id)}/backfill`, body, slow: true, ...options }));
  }
}

export class Heartbeats {
  readonly #send: Send;
  constructor(send: Send) {
    this.#send = send;
  }

  /** Say that a job is alive: an event is delivered if the next call does not come within this time. */
  async beat(monitor: string, heartbeat: Schemas["HeartbeatIn"], options?: CallOptions): Promise<Heartbeat> {
    return document(await this.#send({ method: "POST", path: `heartbeats/${name(monitor)}`, body: heartbeat, ...options }));
  }

  async get(monitor: string, options?: CallOptions): Promise<Heartbeat> {
    return document(await this.#send({ method: "GET", path: `heartbeats/${name(monitor)}`, ...options }));
  }

  /** End a monitor: no event is delivered until the next `beat` begins it anew. */
  async end(monitor: string, options?: CallOptions): Promise<void> {
    await this.#send({ method: "DELETE", path: `heartbeats/${name(monitor)}`, repeatable: false, ...options });
  }
}

/** Bulk jobs: cancel, move, redrive or fire all events that match a filter. */
export class Jobs {
  readonly #send: Send;
  constructor(send: Send) {
    this.#send = send;
  }

  /** Count the events that match; nothing is changed before `confirm`. */
  async prepare(job: Schemas["BulkIn"], options?: CallOptions): Promise<BulkJob> {
    // A job that was made twice does nothing: each waits for its confirmation.
    return document(await this.#send({ method: "POST", path: "jobs", body: job, slow: true, ...options }));
  }

  async get(id: string, options?: CallOptions): Promise<BulkJob> {
    return document(await this.#send({ method: "GET", path: `jobs/${name(id)}`, ...options }));
  }

  list(options?: CallOptions): AsyncGenerator<BulkJob, void, undefined> {
    return pages<BulkJob>(this.#send, "jobs", {}, options);
  }

  /** Start the job with the confirmation of its count. */
  async confirm(id: string, confirmation: string, options?: CallOptions): Promise<BulkJob> {
    return document(await this.#send({ method: "POST", path: `jobs/${name(id)}/confirm`, body: { confirmation }, ...options }));
  }

  /** Stop the job. What it has changed stays changed. */
  async cancel(id: string, options?: CallOptions): Promise<BulkJob> {
    return document(await this.#send({ method: "POST", path: `jobs/${name(id)}/cancel`, ...options }));
  }
}

/** Locks, as the API has them: the caller renews its grant after a third of `valid_ms`, and counts `valid_ms` from before the request. */
export class Locks {
  readonly #send: Send;
  constructor(send: Send) {
    this.#send = send;
  }

  /** Acquire or renew a lock. `state` is `held`, or `waiting`: ask again after `retry_ms`. Throws `Refused` with `lock-held`, `lock-lost`. */
  async ask(lock: string, request: LockRequest, options?: CallOptions): Promise<LockAnswer> {
    return document(await this.#send({ method: "PUT", path: `locks/${name(lock)}`, body: request, ...options }));
  }

  /** Release the grant, and leave the queue. */
  async release(lock: string, holder: string, nonce: string, options?: CallOptions): Promise<void> {
    await this.#send({ method: "DELETE", path: `locks/${name(lock)}`, query: { holder, nonce }, ...options });
  }

  async get(lock: string, options?: CallOptions): Promise<Lock> {
    return document(await this.#send({ method: "GET", path: `locks/${name(lock)}`, ...options }));
  }

  list(options?: CallOptions): AsyncGenerator<Lock, void, undefined> {
    return pages<Lock>(this.#send, "locks", {}, options);
  }
}

function withId<T extends NewEvent | NewFanout>(event: T): T {
  return event.id !== undefined || event.collapse !== undefined || event.durability === "fast" ? event : { ...event, id: `~${random(16)}` };
}

/** The result of an event that no request can carry. It does not stop the others. */
function tooLarge(size: number, most: number): Schemas["BatchLine"] {
  const type = "https://tocsin.dev/problems/content-too-large";
  const detail = `The event has ${size} bytes. A batch has at most ${most}.`;
  return { index: 0, status: 413, problem: { type, title: "Content too large", status: 413, detail } };
}

/** Split events into batches of at most `most` bytes: each event has its own bytes and a comma, and the array one bracket more. */
function* chunks(
  events: readonly NewEvent[],
  sizes: readonly number[],
  most: number,
): Generator<{ first: number; events: NewEvent[] }, void, undefined> {
  let first = 0;
  let size = 1;
  let chunk: NewEvent[] = [];
  for (const [index, event] of events.entries()) {
    const bytes = sizes[index]!;
    if (chunk.length > 0 && (chunk.length === BATCH_EVENTS || size + bytes > most)) {
      yield { first, events: chunk };
      [first, size, chunk] = [index, 1, []];
    }
    chunk.push(event);
    size += bytes;
  }
  if (chunk.length > 0) yield { first, events: chunk };
}
