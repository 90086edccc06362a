/** A shop that cancels orders that were not paid within 30 days. Run it beside `tocsin dev`: npm run orders */

import { pathToFileURL } from "node:url";
import { BadDelivery, Refused, verify, type Tocsin } from "tocsin";
import { stage, type Handler } from "./local.ts";

export class Orders {
  readonly state = new Map<number, "open" | "paid" | "cancelled">();
  readonly #tocsin: Tocsin;
  readonly #secret: string;
  readonly #patience: string;

  constructor(tocsin: Tocsin, secret: string, patience = "P30D") {
    this.#tocsin = tocsin;
    this.#secret = secret;
    this.#patience = patience;
  }

  async place(order: number): Promise<void> {
    this.state.set(order, "open");
    await this.#tocsin.events.create({ id: `order-${order}:unpaid`, payload: { order }, delay: this.#patience });
  }

  async pay(order: number): Promise<void> {
    this.state.set(order, "paid");
    try {
      await this.#tocsin.events.cancel(`order-${order}:unpaid`);
    } catch (error) {
      // It is being delivered at this moment: `unpaid` looks at the state.
      if (!(error instanceof Refused && error.status === 409)) throw error;
    }
  }

  /** Handle a delivery and return the status to answer. */
  unpaid: Handler = async (headers, body) => {
    try {
      const { payload } = await verify<{ order: number }>(headers, body, this.#secret);
      if (this.state.get(payload.order) === "open") this.state.set(payload.order, "cancelled");
      return 204;
    } catch (error) {
      if (error instanceof BadDelivery) return 401;
      throw error;
    }
  };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await stage(async ({ tocsin, secret, handle, until }) => {
    const shop = new Orders(tocsin, secret, "PT3S");
    handle(shop.unpaid);
    await shop.place(17);
    await shop.place(18);
    await shop.pay(18);
    await until(() => shop.state.get(17) !== "open");
    console.log(`Order 17 is ${shop.state.get(17)}, order 18 is ${shop.state.get(18)}.`);
  });
}
