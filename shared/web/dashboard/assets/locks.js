// The panel of locks: who holds them, and who waits. It is shown only while the tenant has locks.

import { all } from "./api.js";
import { badge, el, moment, own, plural, table } from "./dom.js";

const MOST = 100;
const COLOURS = { held: "good", revoked: "warn", free: "dead" };

export const locks = {
  id: "locks", title: "Locks", view: "overview", needs: "events", rare: true, every: (ctx) => (ctx.locked ? 10_000 : 60_000),
  still: ({ items, more }) => JSON.stringify([more, items]),
  async load(ctx, signal) {
    const found = await all("v1/locks", ctx.query, signal, MOST, 2);
    ctx.locked = found.items.length > 0;
    return found;
  },
  empty: ({ items }) => (items.length ? null : "There are no locks."),
  build(body) {
    const sum = el("p", { class: "sum" });
    const list = el("div", {});
    body.append(sum, list);
    const row = (lock) => [own(lock.name), badge(lock.state, COLOURS[lock.state]), lock.holder ? own(lock.holder) : "–", String(lock.token), lock.renewed ? moment(lock.renewed) : "–", lock.free_at ? moment(lock.free_at) : "–",
      lock.waiters.length ? own(lock.waiters.map((each) => each.holder).join(", ")) : "–", lock.note ? own(lock.note) : "–"];
    return {
      show({ items, more }) {
        const held = items.filter((lock) => lock.state !== "free").length;
        sum.textContent = `${more ? "The first " : ""}${plural(items.length, "lock")}, ${held} held.`;
        list.replaceChildren(table("Locks", ["lock", "state", "holder", "token", "renewed", "free at", "waiters", "note"], items.map(row)));
      },
    };
  },
};
