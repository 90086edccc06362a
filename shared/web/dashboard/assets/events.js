// The panels of a tenant's events: current counts, events per minute, lateness.

import { call, present as clock } from "./api.js";
import { lines, stacked } from "./charts.js";
import { badge, count, el, plural, seconds, span, table } from "./dom.js";

const MINUTE = 60_000;
const iso = (ms) => new Date(ms).toISOString();

/** Return ms between loads of the minutes: a bar in the chart of an hour is wide, in the chart of a day it is a pixel. */
const pace = (ctx) => (ctx.range <= 60 ? 10_000 : ctx.range <= 360 ? 20_000 : 60_000);

/** Return the minutes of the range: outcomes of past minutes, planned events of future ones. */
async function minutes(ctx, signal) {
  const found = await ctx.once("minutes", async () => {
    const present = Math.floor(clock() / MINUTE) * MINUTE;
    const [from, next] = [present - (ctx.range - 1) * MINUTE, present + MINUTE];
    const to = next + ctx.range * MINUTE;
    const [past, future] = await Promise.all([
      call("GET", "v1/history", { query: { ...ctx.query, from: iso(from), to: iso(next) } }),
      call("GET", "v1/load", { query: { ...ctx.query, from: iso(next), to: iso(to) } }),
    ]);
    return { from, present, to, past: past.items, future: future.items };
  }, { age: pace(ctx) - 500 });
  signal.throwIfAborted();
  return found;
}

/** Return the counts of the tenant's events; all panels share one call. */
export const statsOf = (ctx) => ctx.once("stats", () => call("GET", "v1/stats", { query: ctx.query }), { age: 9000 });

export const now = {
  id: "now", title: "Now", view: "overview", needs: "events", every: () => 10_000,
  async load(ctx, signal) {
    const [stats, { past }] = await Promise.all([statsOf(ctx), minutes(ctx, signal)]);
    signal.throwIfAborted();
    return { stats, gap: past.reduce((sum, each) => sum + each.gap, 0), range: ctx.range };
  },
  build(body) {
    const tiles = el("div", { class: "tiles" });
    const channels = el("div", {});
    body.append(tiles, channels);
    const tile = (name, value, kind = "", about = "") => el("div", { class: `tile ${kind}`, title: about, "data-name": name }, el("b", { class: String(value).length > 8 ? "long" : null }, value), el("span", {}, name.replace(/(\d) (h|min)$/, "$1\u00a0$2")));
    return {
      show({ stats, gap, range }) {
        const bad = (value) => (value ? "bad" : "");
        tiles.replaceChildren(
          tile("open", count(stats.open)),
          tile("retrying", count(stats.retrying), stats.retrying ? "warn" : ""),
          tile("overdue", count(stats.overdue), bad(stats.overdue), "Open events that are more than 45 s past their due time and have no owner"),
          tile("stuck", count(stats.stuck), bad(stats.stuck), "Overdue events whose shard was requested several times without success"),
          tile("held", count(stats.held) + (stats.held_partial ? "+" : ""), stats.held ? "warn" : "", "Events whose channel is paused or whose circuit breaker is open"),
          tile("delivered, 24 h", count(stats.delivered)),
          tile("dead, 24 h", count(stats.dead), bad(stats.dead)),
          tile("late p99, 24 h", span(stats.late_ms.p99)),
          tile(`unaccounted events, ${range < 60 ? `${range} min` : `${range / 60} h`}`, count(gap), gap ? "bad" : "good", "Accepted events minus finished events, of finished shards. Any value but 0 is a fault of the service."),
        );
        const rows = Object.entries(stats.channels).map(([name, each]) => [name, badge(each.state, each.state === "ok" ? "good" : "bad"), count(each.delivered), count(each.dead), count(each.held), span(each.late_ms.p99)]);
        // The service counts by channel once all events of a minute have ended.
        const [delivered, dead] = ["delivered", "dead"].map((name) => stats[name] - Object.values(stats.channels).reduce((sum, each) => sum + each[name], 0));
        if (delivered > 0 || dead > 0) rows.push(["not finished yet (all channels)", "", count(Math.max(0, delivered)), count(Math.max(0, dead)), "", ""]);
        channels.replaceChildren(...(rows.length ? [table("Channels", ["channel", "state", "delivered", "dead", "held", "late p99"], rows)] : []));
      },
    };
  },
};

export const due = {
  id: "due", title: "Events due per minute", view: "overview", needs: "events", every: pace,
  load: minutes,
  empty: ({ past, future }) => (past.length || future.some((each) => each.scheduled) ? null : "No events were due in this range, and none are planned. Create one under Events, or with POST /api/v1/events."),
  build(body) {
    const box = el("div", { class: "chart" });
    body.append(box, el("p", { class: "about" }, "Left of the line: what became of each minute's events. Right of it: planned events."));
    const chart = stacked(box, (data) => {
      const sum = (at) => count(data[at].reduce((all, each) => all + each, 0));
      return `Events per minute: ${sum(1)} delivered, ${sum(2)} dead or lapsed, ${sum(3)} open and past, ${sum(4)} planned`;
    }, [{ label: "delivered", colour: "good" }, { label: "dead, lapsed", colour: "bad" }, { label: "open", colour: "warn" }, { label: "planned", colour: "planned" }]);
    return {
      show({ from, to, present, past, future }) {
        const at = new Map(past.map((each) => [Date.parse(each.minute), each]));
        const data = [[], [], [], [], []];
        for (let minute = from; minute <= present; minute += MINUTE) {
          const each = at.get(minute);
          [minute / 1000, each?.delivered ?? 0, (each?.dead ?? 0) + (each?.lapsed ?? 0), each?.open ?? 0, 0].forEach((value, number) => data[number].push(value));
        }
        for (const each of future) [seconds(each.minute), 0, 0, 0, each.scheduled].forEach((value, number) => data[number].push(value));
        chart.show(data, from / 1000, to / 1000);
      },
      end: chart.end,
    };
  },
};

export const late = {
  id: "late", title: "Lateness", view: "overview", needs: "events", every: pace,
  load: minutes,
  empty: ({ past }) => (past.some((each) => each.late_ms.max !== null) ? null : "No event was delivered in this range. A minute appears here when all its events have ended."),
  build(body) {
    const box = el("div", { class: "chart" });
    body.append(box, el("p", { class: "about" }, "Lateness of delivered events, by the minute of their due time. p50 and p99 are at most the values shown."));
    const chart = lines(box, (data) => {
      const minutes = data[1].filter((each) => each !== null).length;
      return `Lateness over ${plural(minutes, "minute")}; maximum: ${span(Math.max(...data[3].filter((each) => each !== null)))}`;
    }, [{ label: "p50", colour: "good" }, { label: "p99", colour: "planned" }, { label: "max", colour: "bad", dash: [5, 4] }], (value) => (value === null || value === undefined ? "–" : span(value)));
    return {
      show({ from, present, past }) {
        // Minutes without deliveries interrupt the line.
        const at = new Map(past.map((each) => [Date.parse(each.minute), each.late_ms]));
        const data = [[], [], [], []];
        for (let minute = from; minute <= present; minute += MINUTE) {
          const each = at.get(minute);
          [minute / 1000, each?.p50 ?? null, each?.p99 ?? null, each?.max ?? null].forEach((value, number) => data[number].push(value));
        }
        chart.show(data, from / 1000, (present + MINUTE) / 1000);
      },
      end: chart.end,
    };
  },
};
