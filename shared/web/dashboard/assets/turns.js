// The panel of checkpoint turns: a time-line per replica.

import { Refused, all, call, enc, present as clock } from "./api.js";
import { timeline } from "./charts.js";
import { badge, count, el, moment, own, plural, seconds, span, table } from "./dom.js";
import { nodesOf } from "./leases.js";

const MOST = 300;
const COLOURS = { granted: "warn", taking: "planned", done: "good", "timed-out": "bad", revoked: "dead" };

async function latest(ctx, signal) {
  try {
    return await call("GET", `v1/fleets/${enc(ctx.fleet)}/checkpoints/latest`, { query: ctx.query, signal });
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

export const turns = {
  id: "turns", title: "Checkpoint turns", view: "overview", needs: "fleets", every: () => 5000, fleet: true,
  async load(ctx, signal) {
    const [turns, nodes] = await Promise.all([all(`v1/fleets/${enc(ctx.fleet)}/turns`, ctx.query, signal, MOST, 2), nodesOf(ctx)]);
    signal.throwIfAborted();
    const replicas = nodes.items.filter((node) => node.turn).map((node) => ({ node: node.node, ...node.turn }));
    // Without a published checkpoint the call would be answered with 404.
    const kept = turns.items.some((turn) => turn.sequence) ? await latest(ctx, signal) : null;
    return { turns: turns.items, replicas, latest: kept };
  },
  empty: ({ turns, replicas }) => (turns.length || replicas.length ? null : "No replica has reported to this fleet yet."),
  build(body) {
    const sum = el("p", { class: "sum" });
    const box = el("div", { class: "chart" });
    const tip = el("p", { class: "tip" });
    const legend = el("p", { class: "legend" }, Object.entries(COLOURS).map(([state, colour]) => el("span", {}, el("i", { class: `key ${colour}` }), state)));
    const list = el("div", {});
    body.append(sum, box, tip, legend, list);
    const idle = "Point at a turn to see its details. The table below lists the latest turns.";
    const chart = timeline(box, (found) => {
      tip.textContent = found ? found.about : idle;
    });
    tip.textContent = idle;
    return {
      show({ turns, replicas, latest }, ctx) {
        const present = clock() / 1000;
        const from = Math.max(present - ctx.range * 60, Math.min(present - 300, ...turns.map((turn) => seconds(turn.granted))) - 10);
        const lanes = [...new Set([...replicas.map((each) => each.node), ...turns.map((turn) => turn.holder)])].sort();
        const spans = turns.map((turn) => {
          const end = turn.ended ? seconds(turn.ended) : ["granted", "taking"].includes(turn.state) ? present : seconds(turn.granted) + turn.timeout_ms / 1000;
          const why = [turn.reason, turn.note, turn.sequence ? `sequence ${count(turn.sequence)}` : ""].filter(Boolean).join(", ");
          return { lane: lanes.indexOf(turn.holder), from: seconds(turn.granted), to: end, colour: COLOURS[turn.state] ?? "dead", text: String(turn.epoch), about: `Turn ${turn.epoch} of ${turn.holder}: ${turn.state}${why ? ` (${why})` : ""}, ${span((end - seconds(turn.granted)) * 1000)} of ${span(turn.timeout_ms)}` };
        }).reverse();
        const late = turns.filter((turn) => turn.state === "timed-out").length;
        chart.show(lanes, spans, from, present + (present - from) * 0.02, `Turns of ${plural(lanes.length, "replica")}: ${plural(turns.length, "turn")}, ${late} timed out`);
        sum.replaceChildren(...(latest ? ["Latest checkpoint: sequence ", el("b", {}, count(latest.sequence)), `, taken by ${latest.node}, `, moment(latest.at), ", location ", own(latest.location)] : ["No checkpoint has been published yet."]));
        list.replaceChildren(
          table("Replicas", ["replica", "role", "lag", "report", "checkpoint", "turn"], replicas.map((each) => [each.node, each.role === "primary" ? badge("primary", "planned") : each.role, count(each.lag), `${span(each.report_age_ms)} ago`, count(each.last_checkpoint),
            each.taking ? badge(`taking turn ${each.taking}`, "planned") : each.down ? badge(each.down, "bad") : each.skipped ? badge(`skipped: ${each.skipped}`) : badge("ready", "good")])),
          el("h3", {}, "Latest turns"),
          table("Latest turns", ["turn", "holder", "state", "granted", "sequence", "reason"], turns.slice(0, 8).map((turn) => [String(turn.epoch), turn.holder, badge(turn.state, COLOURS[turn.state]), moment(turn.granted), count(turn.sequence), [turn.reason, turn.note].filter(Boolean).join(", ")])));
      },
      end: chart.end,
    };
  },
};
