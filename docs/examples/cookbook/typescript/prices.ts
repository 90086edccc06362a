/** A price that changes at midnight, local time, in twelve time zones. Run it beside `tocsin dev`: npm run prices */

import { pathToFileURL } from "node:url";
import { BadDelivery, verify, type Tocsin } from "tocsin";
import { stage, type Handler } from "./local.ts";

export const ZONES = [
  "Pacific/Auckland", "Australia/Sydney", "Asia/Tokyo", "Asia/Kolkata", "Asia/Dubai", "Europe/Helsinki",
  "Europe/Berlin", "Europe/London", "America/Sao_Paulo", "America/New_York", "America/Denver", "America/Los_Angeles",
];

type Change = { article: string; zone: string; cents: number };

/** Return the instant at which a day such as 2027-03-28 begins in a time zone. */
export function midnight(day: string, zone: string): Date {
  const clock = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" });
  const wanted = Date.parse(`${day}T00:00:00Z`);
  // The zone's offset at the result is what counts; the second look corrects a clock change between guess and result.
  let found = wanted;
  for (let look = 0; look < 2; look++) found -= Date.parse(`${clock.format(found).replace(" ", "T")}Z`) - wanted;
  return new Date(found);
}

export class Prices {
  readonly current = new Map<string, number>();
  readonly #tocsin: Tocsin;
  readonly #secret: string;

  constructor(tocsin: Tocsin, secret: string) {
    this.#tocsin = tocsin;
    this.#secret = secret;
  }

  /** Plan a price from midnight of `day` on, in each zone. The same call again, after a crash, plans nothing twice. */
  async change(article: string, cents: number, day: string): Promise<void> {
    const events = ZONES.map((zone) => ({
      id: `price:${article}:${day}:${zone.replace("/", "-")}`,
      due: midnight(day, zone),
      payload: { article, zone, cents } satisfies Change,
      labels: { article },
    }));
    const done = await this.#tocsin.events.batch(events);
    if (done.rejected > 0) throw new Error(`${article} changes in ${done.accepted} of ${ZONES.length} zones only`);
  }

  /** Cancel the change in the zones where it is not midnight yet. */
  async withdraw(article: string, day: string): Promise<void> {
    for await (const event of this.#tocsin.events.list({ state: "scheduled", id_prefix: `price:${article}:${day}:` })) {
      await this.#tocsin.events.cancel(event.id);
    }
  }

  /** Handle a delivery and return the status to answer. To set a price twice does no harm. */
  deliver: Handler = async (headers, body) => {
    try {
      const { payload } = await verify<Change>(headers, body, this.#secret);
      this.current.set(`${payload.article} in ${payload.zone}`, payload.cents);
      return 204;
    } catch (error) {
      if (error instanceof BadDelivery) return 401;
      throw error;
    }
  };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await stage(async ({ tocsin, secret, handle, until }) => {
    const shop = new Prices(tocsin, secret);
    handle(shop.deliver);
    const day = new Date(Date.now() + 2 * 86_400_000).toISOString().slice(0, 10);
    await shop.change("tea", 349, day);
    for (const zone of ZONES) console.log(`${midnight(day, zone).toISOString()}  ${zone}`);
    // Nobody waits two days for an example: one of them is fired now, and the others are cancelled.
    await tocsin.events.fire(`price:tea:${day}:Asia-Tokyo`);
    await until(() => shop.current.size > 0);
    await shop.withdraw("tea", day);
    console.log(`The price is ${[...shop.current].map((each) => each.join(": "))}.`);
  });
}
