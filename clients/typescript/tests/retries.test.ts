// Retries, against a server that answers by a script.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { merged } from "../src/resources.js";
import { Refused, Tocsin, Unreachable, Unreadable } from "../src/index.js";

type Step = { status: number; body?: unknown; headers?: Record<string, string> } | "cut";
const EVENT = { id: "e", tenant: "t", state: "scheduled" };
const problem = (status: number, code: string, more: object = {}): Step => ({
  status,
  body: { type: `https://tocsin.dev/problems/${code}`, title: code, status, detail: "why", ...more },
});

async function scripted(steps: Step[], use: (tocsin: Tocsin, bodies: string[]) => Promise<void>): Promise<number> {
  const bodies: string[] = [];
  const server = createServer((request: IncomingMessage, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      const step = steps[Math.min(bodies.length, steps.length - 1)]!;
      bodies.push(body);
      if (step === "cut") request.socket.destroy();
      else response.writeHead(step.status, step.headers).end(step.body === undefined ? "" : JSON.stringify(step.body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(new Tocsin({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, key: "k", retries: 2 }), bodies);
  } finally {
    server.close();
    server.closeAllConnections();
  }
  return bodies.length;
}

test("bytes are refused and not sent as an object of numbers", async () => {
  await scripted([{ status: 201, body: EVENT }], async (tocsin, bodies) => {
    for (const payload of [new Uint8Array([60, 97, 62]), Buffer.from("<a>"), new Uint8Array([60]).buffer, { deep: [new Uint8Array(1)] }]) {
      await assert.rejects(tocsin.events.create({ payload, delay: "PT1S", content_type: "text/xml" }), /bytes: give the text of their base64/);
      await assert.rejects(tocsin.events.batch([{ payload, delay: "PT1S" }]), TypeError);
    }
    assert.equal(bodies.length, 0);
    await tocsin.events.create({ payload: "PGE+", delay: "PT1S", content_type: "text/xml" });
  });
});

test("a call is repeated with the same id until it is answered", async () => {
  const steps: Step[] = [problem(503, "storage-unavailable", { outcome: "unknown" }), "cut", { status: 201, body: EVENT }];
  await scripted(steps, async (tocsin, bodies) => {
    assert.equal((await tocsin.events.create({ payload: 1, delay: "PT1H" })).id, "e");
    const ids = bodies.map((body) => (JSON.parse(body) as { id: string }).id);
    assert.equal(ids.length, 3);
    assert.match(ids[0]!, /^~[0-9a-f]{32}$/);
    assert.deepEqual(new Set(ids).size, 1);
  });
});

test("the number of retries is bounded, and the last refusal is thrown", async () => {
  const tries = await scripted([problem(503, "storage-unavailable")], async (tocsin) => {
    const expected = (error: unknown): boolean => error instanceof Refused && error.code === "storage-unavailable" && error.uncertain;
    await assert.rejects(tocsin.events.get("e"), expected);
  });
  assert.equal(tries, 3);
});

test("a call that could count twice is not repeated after a lost answer, but after a refusal for load", async () => {
  const lost = (error: unknown): boolean => error instanceof Unreachable && error.sent;
  assert.equal(await scripted(["cut"], (tocsin) => assert.rejects(tocsin.schedules.delete("s"), lost)), 1);
  const steps = [problem(429, "too-many-requests"), { status: 202, body: EVENT }];
  assert.equal(await scripted(steps, async (tocsin) => void (await tocsin.schedules.trigger("s"))), 2);
});

test("a Retry-After that is too long ends the call; others are lower bounds", async () => {
  const long: Step = { ...(problem(429, "too-many-requests") as object), status: 429, headers: { "retry-after": "3600" } };
  const tries = await scripted([long], async (tocsin) => {
    await assert.rejects(tocsin.stats(), (error) => error instanceof Refused && error.retryAfter === 3600 && !error.uncertain);
  });
  assert.equal(tries, 1);
  const short: Step = { status: 429, headers: { "retry-after": "1" } };
  const began = performance.now();
  await scripted([short, { status: 200, body: {} }], async (tocsin) => void (await tocsin.stats()));
  assert.ok(performance.now() - began >= 990);
});

test("a cancel whose answer was lost succeeds if the event is cancelled", async () => {
  const steps = ["cut" as const, problem(409, "already-final"), { status: 200, body: { ...EVENT, state: "cancelled" } }];
  assert.equal(await scripted(steps, async (tocsin) => assert.equal(await tocsin.events.cancel("e"), undefined)), 3);
  const first = [problem(409, "already-final")];
  assert.equal(await scripted(first, (tocsin) => assert.rejects(tocsin.events.cancel("e"), { code: "already-final" })), 1);
});

test("events of a batch that were refused for load are sent again", async () => {
  const line = (index: number, status: number): object => ({ index, status, id: `id${index}` });
  const steps: Step[] = [
    { status: 200, body: { accepted: 1, rejected: 2, results: [line(0, 429), line(1, 201), line(2, 422)] } },
    { status: 200, body: { accepted: 1, rejected: 0, results: [line(0, 201)] } },
  ];
  await scripted(steps, async (tocsin, bodies) => {
    const done = await tocsin.events.batch([1, 2, 3].map((payload) => ({ payload, delay: "PT1H" })));
    assert.deepEqual([done.accepted, done.rejected, done.results.map((each) => each.status)], [2, 1, [201, 201, 422]]);
    assert.deepEqual(JSON.parse(bodies[1]!), [{ payload: 1, delay: "PT1H" }]);
  });
});

test("a large batch is split by the limit that the app tells, and a small one is sent without asking", async () => {
  const event = { payload: "x".repeat(240_000), delay: "PT1H" };
  const answer = (count: number): Step => {
    const results = Array.from({ length: count }, (_, index) => ({ index, status: 201, id: `id${index}` }));
    return { status: 200, body: { accepted: count, rejected: 0, results } };
  };
  const sizes: Step = { status: 200, body: { batch_bytes: 1_500_000, batch_events: 10_000, event_bytes: 524_288, payload_bytes: 262_144 } };
  await scripted([sizes, answer(6), answer(4)], async (tocsin, bodies) => {
    const done = await tocsin.events.batch(Array(10).fill(event));
    assert.deepEqual([done.accepted, done.results.length], [10, 10]);
    assert.deepEqual(
      bodies.map((body) => (body === "" ? 0 : (JSON.parse(body) as unknown[]).length)),
      [0, 6, 4],
    );
    assert.ok(bodies.every((body) => body.length <= 1_500_000));
  });
  assert.equal(await scripted([answer(4)], async (tocsin) => void (await tocsin.events.batch(Array(4).fill(event)))), 1);
  const large = { payload: "x".repeat(1_500_000), delay: "PT1H" };
  await scripted([sizes, answer(1), answer(1)], async (tocsin) => {
    const done = await tocsin.events.batch([event, large, event]);
    assert.deepEqual([done.rejected, done.results.map(({ index, status }) => [index, status])], [1, [[0, 201], [1, 413], [2, 201]]]);
  });
});

test("an aborted call ends at once with the reason, also in a pause", async () => {
  await scripted([{ status: 429, headers: { "retry-after": "30" } }], async (tocsin, bodies) => {
    const ended = new AbortController();
    const call = tocsin.stats({ signal: ended.signal });
    while (bodies.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    ended.abort(new Error("enough"));
    await assert.rejects(call, /enough/);
    await assert.rejects(tocsin.stats({ signal: ended.signal }), /enough/);
  });
});

test("answers of other servers are not taken for this API's", async () => {
  await scripted([{ status: 200, body: "a page" }], (tocsin) => assert.rejects(tocsin.stats(), Unreadable));
  await scripted([{ status: 302, headers: { location: "/" } }], (tocsin) => assert.rejects(tocsin.stats(), { status: 302, code: "" }));
});

test("the key does not travel over plain http to another machine, or in an address", () => {
  assert.throws(() => new Tocsin({ url: "http://app.example", key: "k" }), /plain http/);
  assert.throws(() => new Tocsin({ url: "https://user:secret@app.example", key: "k" }), TypeError);
  assert.throws(() => new Tocsin({ url: "https://app.example", key: "k\n" }), TypeError);
  new Tocsin({ url: "http://app.example", key: "k", allowPlainHttp: true });
});

test("a path cannot be left by an id", async () => {
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
  const { port } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  const tocsin = new Tocsin({ url: `http://127.0.0.1:${port}`, key: "k", retries: 0 });
  for (const id of ["", "..", "a/b", "a?b", "a#b", "a%2fb"]) await assert.rejects(tocsin.events.get(id), TypeError);
  await assert.rejects(tocsin.events.get("e"), (error) => error instanceof Unreachable && !error.sent && error.message.includes("ECONNREFUSED"));
});

const CHANNEL = { name: "x", type: "http", url: "https://a.example/", created: "2030-01-01T00:00:00Z", paused: false, flow: { breaker: "closed" } };
const shown = (etag: string): Step => ({ status: 200, body: CHANNEL, headers: { etag } });

async function setOnce(steps: Step[]): Promise<{ sent: number; bodies: string[] }> {
  const seen: string[] = [];
  const sent = await scripted(steps, async (tocsin, bodies) => {
    try {
      await tocsin.calendars.get("x").then(() => tocsin.tenants.set("x", { searchable: ["order"] }));
    } finally {
      seen.push(...bodies);
    }
  });
  return { sent, bodies: seen };
}

test("set begins again if another call has changed the same, and after a lost answer", async () => {
  const changed = problem(412, "precondition-failed");
  const steps: Step[] = [shown('"0"'), shown('"1"'), changed, shown('"2"'), "cut", changed, shown('"3"'), shown('"4"')];
  const { sent, bodies } = await setOnce(steps);
  assert.equal(sent, 8);
  assert.deepEqual(JSON.parse(bodies[7]!).searchable, ["order"]);
});

test("set ends after five changes by others, and where the entity tag was lost", async () => {
  const changed = problem(412, "precondition-failed");
  const rounds = Array.from({ length: 5 }, () => [shown('"1"'), changed]).flat();
  await assert.rejects(setOnce([shown('"0"'), ...rounds]), { status: 412 });
  await assert.rejects(setOnce([{ status: 200, body: CHANNEL }]), Unreadable);
});

interface Case {
  name: string;
  stored: Record<string, unknown>;
  named: Record<string, unknown>;
  merged: Record<string, unknown>;
}

test("named fields are merged as the Python client and the command do", async () => {
  const cases = JSON.parse(await readFile(process.env.MERGES!, "utf8")) as Case[];
  assert.ok(cases.length > 10);
  for (const each of cases) assert.deepEqual(merged(each.stored, each.named), each.merged, each.name);
});

test("an answer with an event that has ended causes a warning, and others cause none", async (context) => {
  const warned = context.mock.method(console, "warn", () => undefined);
  const steps: Step[] = [
    { status: 200, body: { ...EVENT, state: "dead" } },
    { status: 200, body: { id: "f", channels: ["a", "b"], events: [EVENT, { ...EVENT, id: "f@b", state: "lapsed" }] } },
    { status: 201, body: EVENT },
    { status: 200, body: { ...EVENT, state: "delivered" } },
  ];
  await scripted(steps, async (tocsin) => {
    assert.equal((await tocsin.events.create({ id: "e", payload: 1, delay: "PT1H" })).state, "dead");
    await tocsin.events.create({ id: "f", payload: 1, delay: "PT1H", channels: ["a", "b"] });
    for (let left = 2; left > 0; left--) await tocsin.events.create({ id: "e", payload: 1, delay: "PT1H", on_conflict: "redrive" });
  });
  assert.deepEqual(warned.mock.calls.map((call) => String(call.arguments[0]).split(":")[0]), ["The event e exists and is dead", "The event f@b exists and is lapsed"]);
});
