// Resources that are set up and not sent: channels, tenants, keys, calendars and fleets.
import type { Call, CallOptions } from "./call.js";
import { Refused, Unreadable } from "./errors.js";
import { document, name, pages, random, type Matching, type Schemas, type Send, type Tagged } from "./send.js";

export type NewChannel =
  | Schemas["HttpChannel"]
  | Schemas["FleetChannel"]
  | Schemas["QueueChannel"]
  | Schemas["EventGridChannel"]
  | Schemas["KafkaChannel"]
  | Schemas["ServiceBusChannel"];
export type Channel =
  | Schemas["HttpChannelOut"]
  | Schemas["FleetChannelOut"]
  | Schemas["QueueChannelOut"]
  | Schemas["EventGridChannelOut"]
  | Schemas["KafkaChannelOut"]
  | Schemas["ServiceBusChannelOut"];
export type Tenant = Schemas["TenantOut"];
export type TenantSettings = Schemas["Tenant"];
export type Key = Schemas["KeyOut"];
export type NewKey = Schemas["KeyIn"];
export type Calendar = Schemas["CalendarOut"];
export type Fleet = Schemas["FleetOut"];
export type NewFleet = Schemas["FleetIn"];

/** Fields to change, and members of objects in them; null resets one. */
export type Changes<T> = T extends readonly unknown[] ? T : T extends object ? { [K in keyof T]?: Changes<T[K]> | null } : T;

/** Members of an answer that are no part of its definition. */
const STATE = {
  tenant: ["created", "name", "uid"],
  channel: ["created", "flow", "name", "paused", "paused_at", "previous_until", "reason", "rotated_at", "secret"],
  fleet: ["created", "generation", "name", "resizing"],
  schedule: ["created", "id", "last", "missed", "next", "paused", "reads_as", "revision", "skipped", "tenant"],
};
/** Objects whose members belong together, so that they are replaced as a whole. */
const WHOLE = ["payload", "per_key", "retry"];
const TRIES = 5;

type Members = Record<string, unknown>;

/** The stored definition with the named fields. Objects are merged member by member, and null removes (RFC 7396). */
export function merged(stored: Members, named: Members): Members {
  const found = { ...stored };
  for (const [field, value] of Object.entries(named)) {
    if (value === undefined) continue;
    const before = found[field];
    delete found[field];
    if (isObject(value) && !WHOLE.includes(field)) {
      let inside = isObject(before) ? before : {};
      if (field === "headers") {
        // The names of headers do not depend on case.
        const given = new Set(Object.keys(value).map((each) => each.toLowerCase()));
        inside = Object.fromEntries(Object.entries(inside).filter(([each]) => !given.has(each.toLowerCase())));
      }
      found[field] = merged(inside, value);
    } else if (value !== null) found[field] = value;
  }
  return found;
}

function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Change the named fields on the entity tag; begin again if another call has changed the resource in between: five attempts in all. */
export async function changeStored<T>(
  send: Send,
  kind: keyof typeof STATE,
  path: string,
  changes: object,
  options?: CallOptions,
): Promise<Tagged<T>> {
  for (let tries = 1; ; tries++) {
    const reply = await send({ method: "GET", path, ...options });
    const { etag, ...answer } = document<Tagged<Members>>(reply);
    if (typeof etag !== "string") throw new Unreadable(`the answer to GET ${path} has no ETag header: a change could undo another one`);
    const stored = Object.fromEntries(Object.entries(answer).filter(([member]) => !STATE[kind].includes(member)));
    try {
      // An attempt whose answer was lost changes the tag; the next attempt changes the same fields again.
      return document(await send({ method: "PUT", path, body: merged(stored, { ...changes }), ifMatch: etag, ...options }));
    } catch (error) {
      if (!(error instanceof Refused && error.status === 412) || tries === TRIES) throw error;
    }
  }
}

function put(path: string, body: unknown, options?: Matching): Call {
  return { method: "PUT", path, body, ...options, repeatable: !options?.ifMatch };
}

function remove(path: string, options?: Matching): Call {
  return { method: "DELETE", path, repeatable: false, ...options };
}

function ofTenant(tenant: string | undefined): string {
  if (tenant === undefined)
    throw new TypeError('channels and keys belong to a tenant: use an admin key and name it, as in new Tocsin({ url, key, tenant: "shop" })');
  return `tenants/${name(tenant)}`;
}

/** Channels of the tenant that the client acts for, with an admin key. */
export class Channels {
  readonly #send: Send;
  readonly #tenant: string | undefined;
  constructor(send: Send, tenant: string | undefined) {
    this.#send = send;
    this.#tenant = tenant;
  }

  #path(channel: string): string {
    return `${ofTenant(this.#tenant)}/channels/${name(channel)}`;
  }

  /** Create the channel, or replace it: fields that are not named are reset. The answer that creates it has its `secret`. */
  async put(channel: string, definition: NewChannel, options?: Matching): Promise<Tagged<Channel>> {
    return document(await this.#send(put(this.#path(channel), definition, options)));
  }

  /** Change the named fields and keep all others; null resets one. `per_key` is replaced as a whole. */
  async set(channel: string, changes: Changes<NewChannel>, options?: CallOptions): Promise<Tagged<Channel>> {
    return changeStored(this.#send, "channel", this.#path(channel), changes, options);
  }

  async get(channel: string, options?: CallOptions): Promise<Tagged<Channel>> {
    return document(await this.#send({ method: "GET", path: this.#path(channel), ...options }));
  }

  list(options?: CallOptions): AsyncGenerator<Channel, void, undefined> {
    return pages<Channel>(this.#send, `${ofTenant(this.#tenant)}/channels`, {}, options);
  }

  /** Delete the channel. Its open events become dead letters. */
  async delete(channel: string, options?: Matching): Promise<void> {
    await this.#send(remove(this.#path(channel), options));
  }

  /** Pause all deliveries until `resume`. The channel's events are held. */
  async pause(channel: string, reason = "", options?: CallOptions): Promise<Tagged<Channel>> {
    const body = reason ? { reason } : undefined;
    return document(await this.#send({ method: "POST", path: `${this.#path(channel)}/pause`, body, ...options }));
  }

  /** Resume the deliveries, and close the circuit breaker. Events that are due are delivered at once. */
  async resume(channel: string, options?: CallOptions): Promise<Tagged<Channel>> {
    return document(await this.#send({ method: "POST", path: `${this.#path(channel)}/resume`, ...options }));
  }

  /** Create a new webhook secret. The previous one stays valid for 24 hours. */
  async rotate(channel: string, options?: CallOptions): Promise<Schemas["SecretOut"]> {
    // Without an id, a second try would also replace the secret that the first one made.
    return document(await this.#send({ method: "POST", path: `${this.#path(channel)}/secret/rotate`, body: { id: random(16) }, ...options }));
  }
}

/** The tenants of the app, for an admin key. */
export class Tenants {
  readonly #send: Send;
  constructor(send: Send) {
    this.#send = send;
  }

  /** Create the tenant, or replace its settings. inherit: a new tenant takes over the events that a deleted one of this name left. */
  async put(
    tenant: string,
    settings: TenantSettings = {},
    { inherit = false, ...options }: Matching & { inherit?: boolean } = {},
  ): Promise<Tagged<Tenant>> {
    const query = inherit ? { inherit } : {};
    return document(await this.#send({ ...put(`tenants/${name(tenant)}`, settings, options), query }));
  }

  /** Change the named settings and keep all others; null resets one. `retry` is replaced as a whole. */
  async set(tenant: string, changes: Changes<TenantSettings>, options?: CallOptions): Promise<Tagged<Tenant>> {
    return changeStored(this.#send, "tenant", `tenants/${name(tenant)}`, changes, options);
  }

  async get(tenant: string, options?: CallOptions): Promise<Tagged<Tenant>> {
    return document(await this.#send({ method: "GET", path: `tenants/${name(tenant)}`, ...options }));
  }

  list(options?: CallOptions): AsyncGenerator<Tenant, void, undefined> {
    return pages<Tenant>(this.#send, "tenants", {}, options);
  }

  /** Delete the tenant with its keys, channels and fleets. Its open events become dead letters. */
  async delete(tenant: string, options?: Matching): Promise<void> {
    await this.#send(remove(`tenants/${name(tenant)}`, options));
  }
}

/** Keys of the tenant that the client acts for, with an admin key. */
export class Keys {
  readonly #send: Send;
  readonly #tenant: string | undefined;
  constructor(send: Send, tenant: string | undefined) {
    this.#send = send;
    this.#tenant = tenant;
  }

  /** Create a key. Only this answer has it, as `key`. This call is never retried after a lost answer. */
  async create(key: NewKey, options?: CallOptions): Promise<Schemas["KeyMade"]> {
    return document(await this.#send({ method: "POST", path: `${ofTenant(this.#tenant)}/keys`, body: key, repeatable: false, ...options }));
  }

  list(options?: CallOptions): AsyncGenerator<Key, void, undefined> {
    return pages<Key>(this.#send, `${ofTenant(this.#tenant)}/keys`, {}, options);
  }

  /** Revoke the key. All instances refuse it within 5 seconds. */
  async revoke(prefix: string, options?: CallOptions): Promise<void> {
    await this.#send(remove(`${ofTenant(this.#tenant)}/keys/${name(prefix)}`, options));
  }

  /** Return the permissions of the client's own key. Any key may call this. */
  async own(options?: CallOptions): Promise<Schemas["OwnKeyOut"]> {
    return document(await this.#send({ method: "GET", path: "key", ...options }));
  }
}

/** Named days that schedules exclude. */
export class Calendars {
  readonly #send: Send;
  constructor(send: Send) {
    this.#send = send;
  }

  /** Create a calendar, or replace its dates, such as 2026-12-25. The schedules that name it follow it. */
  async put(calendar: string, dates: string[], options?: Matching): Promise<Tagged<Calendar>> {
    return document(await this.#send({ ...put(`calendars/${name(calendar)}`, { dates }, options), slow: true }));
  }

  async get(calendar: string, options?: CallOptions): Promise<Tagged<Calendar>> {
    return document(await this.#send({ method: "GET", path: `calendars/${name(calendar)}`, ...options }));
  }

  list(options?: CallOptions): AsyncGenerator<Calendar, void, undefined> {
    return pages<Calendar>(this.#send, "calendars", {}, options);
  }

  /** Delete a calendar that no schedule names. */
  async delete(calendar: string, options?: Matching): Promise<void> {
    await this.#send(remove(`calendars/${name(calendar)}`, options));
  }
}

/** Definitions of fleets. */
export class Fleets {
  readonly #send: Send;
  constructor(send: Send) {
    this.#send = send;
  }

  /** Create the fleet, or replace its definition while it runs: fields that are not named are reset. */
  async put(fleet: string, definition: NewFleet, options?: Matching): Promise<Tagged<Fleet>> {
    return document(await this.#send(put(`fleets/${name(fleet)}`, definition, options)));
  }

  /** Change the named fields and keep all others; null resets one. Only a resize changes `partitions`. */
  async set(fleet: string, changes: Changes<NewFleet>, options?: CallOptions): Promise<Tagged<Fleet>> {
    return changeStored(this.#send, "fleet", `fleets/${name(fleet)}`, changes, options);
  }

  async get(fleet: string, options?: CallOptions): Promise<Tagged<Fleet>> {
    return document(await this.#send({ method: "GET", path: `fleets/${name(fleet)}`, ...options }));
  }

  list(options?: CallOptions): AsyncGenerator<Fleet, void, undefined> {
    return pages<Fleet>(this.#send, "fleets", {}, options);
  }

  /** Delete a fleet that has no live server. */
  async delete(fleet: string, options?: Matching): Promise<void> {
    await this.#send(remove(`fleets/${name(fleet)}`, options));
  }
}
