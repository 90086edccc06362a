// The client against the running app: TOCSIN_URL, TOCSIN_KEY (of an admin), TOCSIN_TENANT.
import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import { BadDelivery, Refused, Tocsin, verify, Work, type Delivery } from "../src/index.js";

const { TOCSIN_URL: url = "", TOCSIN_KEY: key = "", TOCSIN_TENANT: tenant = "" } = process.env;
const tocsin = new Tocsin({ url, key, tenant });
const admin = new Tocsin({ url, key });

// A receiver with one channel for each path. A path's answers are used up in order; the last one stays.
const deliveries: Record<string, Delivery<unknown>[]> = {};
const secrets: Record<string, string> = {};
const answers: Record<string, ((response: ServerResponse) => void)[]> = {};
const server = createServer((request, response) => {
  const parts: Buffer[] = [];
  request.on("data", (part: Buffer) => parts.push(part));
  request.on("end", () => {
    const channel = request.url!.slice(1);
    verify(request.headers, Buffer.concat(parts), secrets[channel]!, { tolerance: 3600 }).then(
      (delivery) => {
        (deliveries[channel] ??= []).push(delivery);
        const script = answers[channel] ?? [];
        const answer = script.length > 1 ? script.shift() : script[0];
        if (answer) answer(response);
        else response.writeHead(204).end();
      },
      (error) => response.writeHead(error instanceof BadDelivery ? 401 : 500).end(),
    );
  });
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
after(() => {
  server.close();
  server.closeAllConnections();
});

async function channel(name: string, more: object = {}): Promise<void> {
  const target = `http://127.0.0.1:${(server.address() as AddressInfo).port}/${name}`;
  const made = await admin.call<{ secret: string }>("PUT", `tenants/${tenant}/channels/${name}`, { type: "http", url: target, ...more });
  secrets[name] = made.secret;
}

async function until<T>(what: string, look: () => Promise<T | undefined | false>): Promise<T> {
  const end = Date.now() + 180_000;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < end, `waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

test("an event is created, delivered with a signature that verifies, and shown", async () => {
  await channel("node-signed");
  const payload = { order: 17, text: "Grüße" };
  const event = await tocsin.events.create({ payload, delay: "PT0S", channel: "node-signed", labels: { team: "orders" } });
  assert.equal(event.tenant, tenant);
  const done = await until("the delivery", async () => {
    const found = await tocsin.events.get(event.id);
    return found.state === "delivered" && found;
  });
  const [delivery] = deliveries["node-signed"]!;
  assert.deepEqual([delivery!.id, delivery!.payload, delivery!.attempt], [event.id, payload, 1]);
  assert.deepEqual([delivery!.tenant, delivery!.channel, delivery!.due.toISOString()], [tenant, "node-signed", done.due]);
  assert.equal(done.labels?.["team"], "orders");
});

test("an event is changed by its version, and cancelled", async () => {
  const due = new Date(Date.now() + 3_600_000);
  const event = await tocsin.events.create({ payload: 1, due });
  assert.equal(event.due, due.toISOString());
  const changed = await tocsin.events.change(event.id, { payload: [2], delay: "PT2H" }, { ifMatch: event.etag });
  assert.deepEqual(changed.payload, [2]);
  assert.notEqual(changed.etag, event.etag);
  await assert.rejects(tocsin.events.change(event.id, { payload: 3 }, { ifMatch: event.etag }), { status: 412 });
  await tocsin.events.cancel(event.id, { ifMatch: changed.etag });
  assert.equal((await tocsin.events.get(event.id)).state, "cancelled");
});

test("the same id and content are one event, and other content is a typed refusal", async () => {
  const event = { id: "node-twice", payload: { n: 1 }, delay: "PT1H" };
  const first = await tocsin.events.create(event);
  assert.deepEqual(await tocsin.events.create(event), first);
  await assert.rejects(tocsin.events.create({ ...event, payload: 2 }), (error) => error instanceof Refused && error.code === "id-conflict");
  const fault = (error: unknown): boolean => error instanceof Refused && error.errors[0]?.pointer === "/delay";
  await assert.rejects(tocsin.events.create({ payload: 1, delay: "soon" }), fault);
  await assert.rejects(tocsin.events.get("node-unknown"), { status: 404, code: "not-found" });
});

test("an admin's client calls operations that are not a tenant's", async () => {
  const found = await tocsin.call<{ name: string }>("GET", `tenants/${process.env.TOCSIN_TENANT}`);
  assert.equal(found.name, process.env.TOCSIN_TENANT);
});

test("a batch is stored, and listed over several pages", async () => {
  const events = Array.from({ length: 45 }, (_, n) => ({ payload: n, delay: "PT3H", labels: { lot: "node" } }));
  const done = await tocsin.events.batch([...events, { payload: 0, delay: "bad" }], { makeIds: true });
  assert.deepEqual([done.accepted, done.rejected, done.results[45]!.status], [45, 1, 422]);
  const listed = await all(tocsin.events.list({ limit: 20, label: "lot=node", from: new Date(), state: "scheduled" }));
  assert.deepEqual(new Set(listed.map((event) => event.id)), new Set(done.results.slice(0, 45).map((line) => line.id!)));
  assert.ok((await tocsin.stats()).open >= 45);
});

test("a dead event is listed and redriven", async () => {
  answers["node-dead"] = [(response) => response.writeHead(400).end(), (response) => response.writeHead(204).end()];
  await channel("node-dead");
  const event = await tocsin.events.create({ payload: 1, delay: "PT1H", channel: "node-dead" });
  await tocsin.events.fire(event.id);
  await until("the dead letter", async () => (await tocsin.events.get(event.id)).state === "dead");
  assert.deepEqual((await all(tocsin.deadLetters.list({ channel: "node-dead" }))).map((each) => each.id), [event.id]);
  await tocsin.events.redrive(event.id);
  await until("the delivery", async () => (await tocsin.events.get(event.id)).state === "delivered");
});

test("a schedule is stored, previewed, listed, paused and deleted", async () => {
  const made = await tocsin.schedules.put("node-nightly", { cron: "30 2 * * *", timezone: "Europe/Berlin", payload: { job: "report" } });
  assert.equal(made.cron, "30 2 * * *");
  assert.equal((await tocsin.schedules.preview("node-nightly", 3)).length, 3);
  assert.ok((await all(tocsin.schedules.list())).some((each) => each.id === "node-nightly"));
  assert.equal((await tocsin.schedules.pause("node-nightly")).id, "node-nightly");
  await tocsin.schedules.resume("node-nightly");
  await tocsin.schedules.delete("node-nightly");
  await assert.rejects(tocsin.schedules.get("node-nightly"), { status: 404 });
});

test("a heartbeat begins a monitor, and ends it", async () => {
  const beat = await tocsin.heartbeats.beat("node-backup", { within: "PT1H", payload: { job: "backup" } });
  assert.equal((await tocsin.heartbeats.get("node-backup")).name, beat.name);
  await tocsin.heartbeats.end("node-backup");

  const mine = { holder: "a", nonce: "n1" };
  const grant = await tocsin.locks.ask("node-lock", { ...mine, ttl: "PT30S" });
  assert.ok(grant.state === "held" && grant.valid_ms === 30_000);
  const renewed = await tocsin.locks.ask("node-lock", { ...mine, token: grant.token, version: grant.version });
  assert.ok(renewed.state === "held" && renewed.token === grant.token);
  assert.equal((await tocsin.locks.ask("node-lock", { holder: "b", nonce: "n2", wait: "PT10S" })).state, "waiting");
  await tocsin.locks.release("node-lock", mine.holder, mine.nonce);
  const shown = await tocsin.locks.get("node-lock");
  assert.deepEqual([shown.state, shown.waiters.map((each) => each.holder)], ["free", ["b"]]);
});

test("a receiver completes an event later", async () => {
  answers["node-work"] = [(response) => response.writeHead(202, Work.later).end()];
  await channel("node-work", { long_work: { within: "PT1H" } });
  const event = await tocsin.events.create({ payload: 1, delay: "PT0S", channel: "node-work" });
  await until("the state working", async () => (await tocsin.events.get(event.id)).state === "working");
  const work = deliveries["node-work"]![0]!.work!;
  assert.equal(work.within, 3600);
  assert.equal((await work.at(url).heartbeat()).state, "working");
  assert.equal((await work.at(url).complete()).event, "delivered");
  await assert.rejects(work.at(url).fail({ error: "too late" }), { code: "work-over" });
});

test("a fan-out is an event for each channel", async () => {
  const made = await tocsin.events.create({ payload: 1, delay: "PT1H", channels: ["node-dead", "node-signed"] });
  assert.deepEqual(made.channels, ["node-dead", "node-signed"]);
  assert.equal((await tocsin.events.getFanout(made.id)).events.length, 2);
  assert.equal((await tocsin.events.cancel(made.id))?.changed, 2);
});

test("a channel is created, changed field by field, paused, rotated and deleted", async () => {
  const headers = { "X-Team": "blue", "x-other": "1" };
  const target = `http://127.0.0.1:${(server.address() as AddressInfo).port}/node-set`;
  const made = await tocsin.channels.put("node-set", { type: "http", url: target, headers, timeout: "PT9S", per_key: { ordered: true } });
  assert.match(made.secret ?? "", /^whsec_/);
  const changed = await tocsin.channels.set("node-set", { headers: { "x-team": "red" }, limits: { concurrency: 5 } });
  assert.ok(changed.type === "http");
  assert.deepEqual([changed.url, changed.timeout, changed.per_key?.ordered], [target, "PT9S", true]);
  assert.deepEqual(changed.headers, { "x-other": "***", "x-team": "***" });
  assert.equal((await tocsin.channels.set("node-set", { per_key: null })).per_key, undefined);
  await assert.rejects(tocsin.channels.put("node-set", { type: "http", url: target }, { ifMatch: made.etag }), { status: 412 });
  assert.equal((await tocsin.channels.pause("node-set", "it moves")).reason, "it moves");
  assert.equal((await tocsin.channels.resume("node-set")).paused, false);
  assert.notEqual((await tocsin.channels.rotate("node-set")).secret, made.secret);
  assert.ok((await all(tocsin.channels.list())).some((each) => each.name === "node-set"));
  await tocsin.channels.delete("node-set");
  await assert.rejects(tocsin.channels.get("node-set"), { status: 404 });
  await assert.rejects(admin.channels.get("node-set"), TypeError);
});

test("a tenant keeps the settings that are not named", async () => {
  await admin.tenants.put("node-shop", { limits: { events_per_second: 50 }, searchable: ["order"] });
  const changed = await admin.tenants.set("node-shop", { limits: { open_events: 7 }, searchable: null });
  assert.deepEqual([changed.limits?.events_per_second, changed.limits?.open_events, changed.searchable ?? []], [50, 7, []]);
  assert.ok((await all(admin.tenants.list())).some((each) => each.name === "node-shop"));
  assert.equal((await admin.tenants.get("node-shop")).uid, changed.uid);
  await admin.tenants.delete("node-shop", { ifMatch: changed.etag });
});

test("a key is created, used and revoked", async () => {
  const made = await tocsin.keys.create({ scopes: ["events"], note: "the web shop" });
  const own = await new Tocsin({ url, key: made.key }).keys.own();
  assert.deepEqual([own.prefix, own.tenant, own.scopes], [made.prefix, tenant, ["events"]]);
  assert.ok((await all(tocsin.keys.list())).some((each) => each.prefix === made.prefix && each.note === "the web shop"));
  await tocsin.keys.revoke(made.prefix);
  assert.ok((await all(tocsin.keys.list())).every((each) => each.prefix !== made.prefix));
});

test("calendars, fleets and schedules are set up", async () => {
  const calendar = await tocsin.calendars.put("node-days", ["2026-12-24", "2026-12-25"]);
  assert.deepEqual((await tocsin.calendars.get("node-days")).dates, calendar.dates);
  assert.ok((await all(tocsin.calendars.list())).some((each) => each.name === "node-days"));
  await tocsin.calendars.delete("node-days");

  await tocsin.fleets.put("node-web", { partitions: 4, servers: { minimum: 2 } });
  const fleet = await tocsin.fleets.set("node-web", { servers: { spare: 1 }, limits: { moves_per_minute: 9 } });
  assert.deepEqual([fleet.partitions, fleet.servers?.minimum, fleet.servers?.spare, fleet.limits?.moves_per_minute], [4, 2, 1, 9]);
  assert.ok((await all(tocsin.fleets.list())).some((each) => each.name === "node-web"));
  assert.equal((await tocsin.fleets.get("node-web")).generation, fleet.generation);
  await tocsin.fleets.delete("node-web");

  await tocsin.schedules.put("node-set", { cron: "0 9 * * *", timezone: "Europe/Berlin", jitter: "PT1M", payload: { a: 1, b: 2 } });
  const schedule = await tocsin.schedules.set("node-set", { cron: "30 9 * * *", payload: { a: 2 } });
  assert.deepEqual([schedule.cron, schedule.timezone, schedule.jitter, schedule.payload], ["30 9 * * *", "Europe/Berlin", "PT1M", { a: 2 }]);
  await tocsin.schedules.delete("node-set");
});
