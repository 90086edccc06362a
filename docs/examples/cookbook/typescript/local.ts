/**
 * Runs an example beside `tocsin dev`: a tenant of its own on the local app, and a receiver on a free port of this machine.
 *
 * TOCSIN_URL names another address of the app, TOCSIN_ADMIN_KEY another key.
 */

import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout } from "node:timers/promises";
import { Tocsin } from "tocsin";

export type Handler = (headers: IncomingHttpHeaders, body: Uint8Array) => Promise<number>;

export interface Stage {
  tocsin: Tocsin;
  /** Of the channel `default`. */
  secret: string;
  /** Send deliveries to this handler from now on. */
  handle(handler: Handler): void;
  /** Wait until a condition holds. Throws after a minute. */
  until(condition: () => boolean): Promise<void>;
}

/** Create a tenant with a channel, run `example` with it, and delete it in the end. */
export async function stage(example: (stage: Stage) => Promise<void>): Promise<void> {
  const url = process.env["TOCSIN_URL"] ?? "http://localhost:7071";
  const admin = new Tocsin({ url, key: process.env["TOCSIN_ADMIN_KEY"] ?? "local-admin-key" });
  const tenant = `tenants/example-${crypto.randomUUID().slice(0, 8)}`;
  let handler: Handler = async () => 503;
  const server = createServer(async (request, response) => {
    const parts: Uint8Array[] = [];
    for await (const part of request) parts.push(part);
    response.writeHead(await handler(request.headers, Buffer.concat(parts)).catch(() => 500)).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "localhost", resolve));
  await admin.call("PUT", tenant, {});
  try {
    const to = `http://localhost:${(server.address() as AddressInfo).port}/`;
    const channel = await admin.call<{ secret: string }>("PUT", `${tenant}/channels/default`, { type: "http", url: to });
    const { key } = await admin.call<{ key: string }>("POST", `${tenant}/keys`, { scopes: ["events"], note: "example" });
    await example({
      tocsin: new Tocsin({ url, key }),
      secret: channel.secret,
      handle: (given) => void (handler = given),
      until: async (condition) => {
        for (const end = Date.now() + 60_000; !condition(); await setTimeout(50)) {
          if (Date.now() > end) throw new Error("Nothing happened for a minute. Does the app run (tocsin dev)?");
        }
      },
    });
  } finally {
    await admin.call("DELETE", tenant);
    server.close();
    server.closeAllConnections();
  }
}
