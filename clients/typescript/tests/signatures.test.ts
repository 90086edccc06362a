// Signatures that the service's own signer has made, and mutations of them: SIGNATURES names the corpus.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { BadDelivery, verify } from "../src/index.js";

interface Case {
  name: string;
  id: string;
  good: boolean;
  headers: Record<string, string>;
  /** Base64. */
  body: string;
  secrets: string[];
  /** Milliseconds. */
  now: number;
}

const cases = JSON.parse(await readFile(process.env["SIGNATURES"]!, "utf8")) as Case[];

test("a delivery is trusted exactly if the service's own verifier trusts it", async () => {
  assert.ok(cases.length > 100);
  for (const each of cases) {
    const options = { now: () => each.now };
    const found = verify(each.headers, Buffer.from(each.body, "base64"), each.secrets, options);
    if (each.good) assert.equal((await verify(new Headers(each.headers), (await found).body, each.secrets, options)).id, each.id);
    if (each.good) assert.equal((await found).id, each.id, each.name);
    else await assert.rejects(found, BadDelivery, each.name);
  }
});

test("a request without a body has no payload, and one of another type has its bytes", async () => {
  const [secret, now] = ["whsec_AAAA", 1_800_000_000_000];
  const stamp = String(now / 1000);
  const time = new Date(now).toISOString();
  const key = await crypto.subtle.importKey("raw", new Uint8Array(3), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  for (const [body, type, payload] of [["", undefined, undefined], ["<a/>", "text/xml", new TextEncoder().encode("<a/>")], ["[1]", "application/json; a=b", [1]]] as const) {
    const signature = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(`e.${stamp}.${body}`));
    const headers = {
      ...{ "webhook-id": "e", "webhook-timestamp": stamp, "webhook-signature": `v1,${Buffer.from(signature).toString("base64")}`, "ce-id": "e" },
      ...{ "ce-source": "/tenants/demo/channels/default", "ce-tocsindue": time, "ce-tocsinfired": time, "ce-tocsinattempt": "1" },
      ...{ "ce-tocsinlatems": "0", "content-type": type },
    };
    const found = await verify(headers, new TextEncoder().encode(body), secret, { now: () => now });
    assert.deepEqual([found.payload, found.contentType], [payload, type ?? "application/json"]);
  }
});

test("a malformed secret and a body that is text are faults of the caller", async () => {
  for (const secret of ["whsec_", "whsec_!", "whsec_AAAAA", "", []]) {
    await assert.rejects(verify({}, new Uint8Array(), secret), TypeError);
  }
  await assert.rejects(verify({}, "{}" as unknown as ArrayBuffer, "whsec_AAAA"), TypeError);
});
