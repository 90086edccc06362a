// A call with the types that openapi-typescript makes of the whole document, as its users write it: TOCSIN_URL, TOCSIN_KEY, TOCSIN_TENANT.
import assert from "node:assert/strict";
import type { paths } from "./generated-api.js";

type Create = paths["/api/v1/events"]["post"];
type Body = Create["requestBody"]["content"]["application/json"];
type Created = Create["responses"][201]["content"]["application/json"];
type Conflict = Create["responses"][409]["content"]["application/problem+json"];

const { TOCSIN_URL: url = "", TOCSIN_KEY: key = "", TOCSIN_TENANT: tenant = "" } = process.env;

function post(body: Body): Promise<Response> {
  const query: NonNullable<Create["parameters"]["query"]> = { tenant };
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  return fetch(`${url}/api/v1/events?${new URLSearchParams(query as Record<string, string>)}`, {
    method: "POST",
    headers,
    body: JSON.stringify(body),
  });
}

const body: Body = { id: "generated-types", payload: { order: 17 }, delay: "PT1H" };
void ({ delay: "PT1H", target: { method: "GET" } } satisfies Body);
// @ts-expect-error: no such member
void ({ delay: "PT1H", paylaod: 1 } satisfies Body);
// @ts-expect-error: null is no delay
void ({ payload: 1, delay: null } satisfies Body);

const answer = await post(body);
const created = (await answer.json()) as Created;
assert.equal(answer.status, 201);
assert.ok("state" in created && created.state === "scheduled");
assert.deepEqual(created.payload, { order: 17 });

const refused = await post({ ...body, payload: 2 });
const conflict = (await refused.json()) as Conflict;
assert.equal(refused.status, 409);
assert.equal(conflict.type satisfies string | undefined, "https://tocsin.dev/problems/id-conflict");
