// The panel of retried and dead events; dead events can be delivered again ("redrive").

import { Refused, all, call, enc, present } from "./api.js";
import { badge, confirm, count, cut, el, folded, moment, plural, problem, table, tell } from "./dom.js";
import { showEvent } from "./event.js";
import { statsOf } from "./events.js";

const STEP = 100; // dead letters shown at first, and added by each press of the button
const PAGES = 10; // a page of the search reads at most 40 shards
const DAY = 86_400_000;
const MINUTE = 60_000;
const LONG = 150_000; // ms; one call redrives events for up to a minute
const iso = (ms) => new Date(ms).toISOString();

const last = (event) => (event.attempts ?? []).at(-1);
const failure = (event) => {
  const attempt = last(event);
  const error = attempt?.error ?? event.error ?? "";
  return (attempt?.status && !error.includes(attempt.status) ? `${attempt.status} ${error}` : error).trim() || "–";
};

export const dead = {
  id: "dead", title: "Retries and dead letters", view: "overview", needs: "events", every: () => 10_000,
  still: ({ dead, more, retried, retrying, all }) => JSON.stringify([more, retrying, more && all, [dead, retried].map((list) => list.map((each) => [each.id, each.attempts?.length, each.next_attempt, each.held]))]),
  async load(ctx, signal) {
    const stats = await statsOf(ctx);
    signal.throwIfAborted();
    const most = (ctx.letters ??= STEP);
    // Lists are searches: they run only if there is something to find, and again when the counts have changed.
    const found = await ctx.once("letters", async () => {
      // The end of the range keeps the search away from planned events, of which none can be dead.
      // The counts begin at a whole minute too.
      const when = { from: iso(Math.floor((present() - DAY) / MINUTE) * MINUTE), to: iso(present() + 60_000) };
      const none = { items: [], more: false };
      const [dead, retried] = await Promise.all([
        stats.dead ? all("v1/dead-letters", { ...ctx.query, ...when }, undefined, most, PAGES * (most / STEP)) : none,
        stats.retrying ? all("v1/events", { ...ctx.query, ...when, state: "retrying" }, undefined, STEP, PAGES) : none,
      ]);
      return { dead: dead.items, more: dead.more, retried: retried.items };
    }, { age: stats.retrying ? 20_000 : 60_000, of: `${stats.dead} ${stats.retrying} ${most}` });
    signal.throwIfAborted();
    return { ...found, retrying: stats.retrying, all: stats.dead };
  },
  empty: ({ dead, more, retrying }) => (dead.length || retrying ? null : `There are no dead letters from the last 24 hours${more ? " in the searched part" : ""}, and no event is being retried.`),
  build(body, ctx, refresh) {
    const said = el("p", { class: "note", role: "alert", hidden: true });
    const retries = el("div", {});
    const letters = el("div", {});
    body.append(said, retries, letters);
    const busy = new Set();

    const redrive = async (event, button) => {
      button.disabled = true;
      busy.add(event.id);
      said.hidden = true;
      try {
        await call("POST", `v1/events/${enc(event.id)}/redrive`, { query: ctx.query });
        tell(`${event.id} will be delivered again.`);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        said.hidden = false;
        said.className = "note wrong";
        said.textContent = `${event.id}: ${problem(error)}`;
      } finally {
        busy.delete(event.id);
      }
      // The list without the event, and the counts of the other panels with it.
      ctx.acted();
    };
    const redriveAll = (shown) => {
      const { query } = ctx;
      // An event that dies again meanwhile is due later, so it stays dead.
      const body = { from: iso(present() - DAY), to: iso(present()) };
      confirm("Redrive all", `All dead events that were due in the last 24 hours (${shown} dead events listed) will be delivered again, each to its channel. Check first that the cause of their failure is gone.`, "Redrive all of them", async (report) => {
        let redriven = 0;
        try {
          // One call redrives events for up to a minute.
          for (let some = 1; some; redriven += some) {
            ({ redriven: some } = await call("POST", "v1/dead-letters/redrive", { query, body, timeout: LONG }));
            if (some) report(`${plural(redriven + some, "event")} redriven.`);
          }
        } finally {
          if (redriven) ctx.acted();
        }
        tell(`${plural(redriven, "event")} redriven.`);
      });
    };
    const may = ctx.may("events");
    const name = (event) => el("button", { type: "button", class: "link", "data-keep": `open ${event.id}`, onclick: () => showEvent(ctx, event.id, ctx.acted), title: event.id }, folded(event.id, 32));
    const row = (event) => [name(event), event.channel ?? "–", moment(event.due), count(event.attempts?.length), el("span", { class: "why", title: failure(event) }, cut(failure(event), 90))];

    return {
      end() {
        ctx.letters = STEP;
      },
      show({ dead, more, retried, retrying, all }) {
        retries.replaceChildren(...(retrying ? [el("h3", {}, `${plural(retrying, "event")} being retried`),
          table("Events being retried", ["event", "channel", "due", "attempts", "last answer", "next"], retried.map((event) => [...row(event), event.next_attempt ? moment(event.next_attempt) : event.held ? badge("held", "warn") : "–"])),
          retried.length < retrying ? el("p", { class: "about" }, `The list shows the ${count(retried.length)} that were due in the last 24 hours.`) : ""] : []));
        const shown = more && all > dead.length ? `${count(dead.length)} of ${count(all)}` : `${count(dead.length)}${more ? "+" : ""}`;
        letters.replaceChildren(...(dead.length ? [
          el("h3", {}, `${shown} dead, due in the last 24 hours`, " ", may && el("button", { type: "button", "data-keep": "*", onclick: () => redriveAll(shown) }, "Redrive all")),
          table("Dead letters", ["event", "channel", "due", "attempts", "last answer", ""], dead.map((event) => [...row(event), !may ? "" :
            el("button", { type: "button", "data-keep": `redrive ${event.id}`, disabled: busy.has(event.id), "aria-label": `Redrive ${event.id}`, onclick: (click) => redrive(event, click.currentTarget) }, "Redrive")])),
          more ? el("button", { type: "button", class: "further", "data-keep": "more", onclick: () => { ctx.letters = dead.length + STEP; refresh(); } }, `Show ${STEP} more`) : "",
        ] : []));
      },
    };
  },
};
