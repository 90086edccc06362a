// The panel of maintenance: Scheduled Events on a time-line per node, and decisions about them.

import { all, call, enc, present as clock } from "./api.js";
import { timeline } from "./charts.js";
import { badge, confirm, count, el, moment, own, plural, seconds, span, table, tell } from "./dom.js";
import { nodesOf } from "./leases.js";
import { story } from "./story.js";

const MOST = 200;
const OVER = 8; // most finished events in the table
const CARDS = 10; // open events shown in full at first
const LANES = 16; // with more nodes than this, the time-line leaves out nodes without events
const COLOURS = { scheduled: "planned", started: "warn", completed: "good", cancelled: "dead", vanished: "dead" };
const PHASES = { PREPARED: "good", APPROVED: "good", DONE: "good", PREPARE_FAILED: "bad", RESTORE_FAILED: "bad", STARTED: "warn", UNREPORTED: "warn" };

const MEASURED = 3; // most finished events with callers' latency
const PROBED = { before: "before", out: "a node is out", one_node: "one node catches up", some_nodes: "some nodes catch up", domain: "a fault domain catches up" };
const VERDICTS = { pending: ["agents probe", "planned"], within: ["within the bounds", "good"], passed: ["a bound is passed", "bad"], "not-measured": ["not measured", "warn"] };

/** Format a latency in milliseconds: 3.2 ms, 410 ms. */
const latency = (ms) => (ms === null ? "–" : `${ms < 100 ? Number(ms.toPrecision(3)) : Math.round(ms)} ms`);

/** Draw p50 and p99 as bars up to `longest` milliseconds, and the bound as a line. */
function bars(found, bound, longest) {
  const share = (ms) => `${(100 * ms) / longest}%`;
  const parts = [["p99", found.p99_ms], ["p50", found.p50_ms]].filter(([, ms]) => ms !== null).map(([name, ms]) => {
    const part = el("span", { class: `part ${name}` });
    part.style.width = share(ms);
    return part;
  });
  if (bound) {
    const line = el("span", { class: "bound" });
    line.style.left = share(bound);
    parts.push(line);
  }
  return el("span", { class: "latency", "aria-hidden": "true" }, parts);
}

/** Show what callers noticed of an event, by phase, beside the time to catch up; nothing if no agent has probed. */
function callers(event) {
  const probe = event.probe;
  const phases = Object.keys(PROBED).filter((phase) => probe?.phases[phase]);
  if (!phases.length) return null;
  const bound = probe.bound?.p99_ms;
  const longest = Math.max(bound ?? 0, ...phases.map((phase) => probe.phases[phase].p99_ms ?? 0)) || 1;
  const rows = phases.map((phase) => {
    const found = probe.phases[phase];
    return [PROBED[phase], count(found.probes), count(found.failures), latency(found.p50_ms), latency(found.p99_ms), bars(found, bound, longest)];
  });
  const caught = Object.entries(event.catch_up_ms ?? {}).map(([node, ms]) => `${node} ${span(ms)}`);
  const [text, kind] = VERDICTS[probe.verdict] ?? [probe.verdict, ""];
  return el("div", { class: "callers" },
    el("p", {}, "Callers ", badge(text, kind), [bound ? ` p99 of at most ${latency(bound)}` : "", probe.bound?.failures === undefined ? "" : ` at most ${Number((100 * probe.bound.failures).toPrecision(3))} % failures`].filter(Boolean).join(","), caught.length ? `; caught up: ${caught.join(", ")}` : ""),
    table("Callers' latency", ["phase", "probes", "failed", "p50", "p99", "p50 and p99"], rows),
    probe.passed.map((sentence) => el("p", { class: "dim" }, sentence)));
}

/** Return the end of an event's impact in seconds; an open event lasts as long as announced, and at least until now. */
function until(event, present) {
  if (event.ended) return seconds(event.ended);
  const begins = begin(event);
  const announced = begins + Math.max(0, event.duration_s);
  return event.started ? Math.max(present, announced) : announced;
}

/** Return an event's status for people. The impact of an approved event may be too short for any document to show it. */
const status = (event) => (event.status === "completed" && !event.started && !event.rehearsal ? "completed, not seen started" : event.status);

/** Return the beginning of an event in seconds; lists are sorted by it. */
const begin = (event) => seconds(event.started ?? event.not_before ?? event.first_seen);

export const maintenance = {
  id: "maintenance", title: "Maintenance", view: "overview", needs: "fleets", every: () => 5000, fleet: true,
  async load(ctx, signal) {
    const [events, nodes] = await Promise.all([all(`v1/fleets/${enc(ctx.fleet)}/maintenance/events`, ctx.query, signal, MOST, 2), nodesOf(ctx)]);
    signal.throwIfAborted();
    return { events: events.items, more: events.more, agents: nodes.items.filter((node) => node.maintenance).map((node) => ({ node: node.node, ...node.maintenance })) };
  },
  empty: ({ events, agents }) => (events.length || agents.length ? null : "No agent has reported to this fleet yet."),
  build(body, ctx, refresh) {
    const sum = el("p", { class: "sum" });
    const box = el("div", { class: "chart" });
    const idle = "Point at an event to see its details. The mark is NotBefore.";
    const tip = el("p", { class: "tip" }, idle);
    const legend = el("p", { class: "legend" }, ["notice", "impact", "completed", "cancelled, vanished"].map((name, at) => el("span", {}, el("i", { class: `key ${["planned", "warn", "good", "dead"][at]}` }), name)));
    const list = el("div", { class: "events" });
    let cards = CARDS;
    body.append(sum, box, tip, legend, list);
    const chart = timeline(box, (found) => {
      tip.textContent = found ? found.about : idle;
    });

    /** Ask for the reason, then call the API. */
    function decide(event, verb) {
      const { fleet, query } = ctx.pinned();
      const [act, about] = verb === "approve" ? ["Approve", `${event.type} of ${event.resources.join(", ") || "no VM"} may begin before its time, once its nodes have prepared.`] : ["Hold", "The event is not approved. Azure starts it at NotBefore nevertheless."];
      const reason = el("input", { id: "reason", maxLength: 200, autocomplete: "off" });
      confirm(`${act} ${event.event_id}`, about, act, async () => {
        const { state } = await call("POST", `v1/fleets/${enc(fleet)}/maintenance/events/${enc(event.event_id)}/${verb}`, { query, body: { reason: reason.value } });
        tell(`${event.event_id} is ${state}.`);
        refresh();
      }, el("label", { for: "reason" }, "Reason"), reason);
    }

    function approval(event) {
      const given = event.approval;
      if (!given) return event.status === "scheduled" ? badge("not approved") : null;
      return el("span", { title: [given.reason, given.expires && `until ${given.expires}`].filter(Boolean).join(", ") }, badge(given.state === "posted" ? "approved" : given.state, given.state === "held" ? "warn" : "good"), " by ", own(given.by === "agent" ? `the agent of ${given.node}` : given.by), given.reason ? [": ", own(given.reason)] : "");
    }

    const storyOf = (event) => el("button", { type: "button", "data-keep": `story ${event.event_id}`, "aria-label": `Story of ${event.event_id}`, onclick: () => story(event, ctx) }, "Story");

    function card(event) {
      const decides = event.status === "scheduled" && ctx.may("fleets");
      const scheduled = event.status === "scheduled";
      const left = event.not_before ? seconds(event.not_before) - clock() / 1000 : null;
      const when = event.not_before ? [moment(event.not_before), scheduled ? ` (${left > 0 ? `in ${span(left * 1000)}` : "passed"})` : ""] : "unknown";
      const button = (verb, text) => el("button", { type: "button", "data-keep": `${verb} ${event.event_id}`, "aria-label": `${text} ${event.event_id}`, onclick: () => decide(event, verb) }, text);
      return el("article", { class: "event", "data-event": event.event_id },
        el("header", {}, el("b", {}, event.type), badge(status(event), COLOURS[event.status]), event.rehearsal ? badge("rehearsal", "planned") : null, event.alarms.map((each) => badge(each, "bad")), el("span", { class: "acts" }, !decides || ["granted", "posted"].includes(event.approval?.state) ? null : button("approve", "Approve"), !decides || ["held", "posted"].includes(event.approval?.state) ? null : button("hold", "Hold"), storyOf(event))),
        el("p", {}, "NotBefore ", when, event.duration_s > 0 ? `, ${span(event.duration_s * 1000)} of impact` : "", event.resources.length ? [", on ", own(event.resources.join(", "))] : "", event.source === "User" ? ", requested by a user" : ""),
        el("p", { class: "phases" }, Object.entries(event.nodes).map(([node, at]) => el("span", { class: "label", title: at.reason ?? "" }, `${node} `, badge(at.phase.toLowerCase().replaceAll("_", " "), PHASES[at.phase] ?? ""), at.reason ? [" ", own(at.reason)] : ""))),
        callers(event),
        el("p", { class: "dim" }, approval(event), " ", el("code", {}, event.event_id)));
    }

    return {
      show({ events, agents, more }, ctx) {
        const present = clock() / 1000;
        const concerned = new Set(events.flatMap((event) => Object.keys(event.nodes)));
        const named = new Set([...agents.map((each) => each.node), ...concerned]);
        const lanes = [...(named.size > LANES ? concerned : named)].sort();
        const spans = [];
        for (const event of events) {
          const [seen, begins, ends] = [seconds(event.first_seen), seconds(event.started ?? event.not_before ?? event.ended ?? event.first_seen), until(event, present)];
          // An approved event may end before its NotBefore.
          const mark = event.not_before && !(event.ended && (!event.started || ends < seconds(event.not_before))) ? seconds(event.not_before) : undefined;
          for (const node of Object.keys(event.nodes)) {
            const lane = lanes.indexOf(node);
            const about = `${event.type} on ${node}: ${status(event)}, ${event.nodes[node].phase.toLowerCase()}; ${event.event_id}`;
            const over = event.ended && !event.started;
            spans.push({ lane, from: seen, to: over ? seconds(event.ended) : begins, colour: over ? COLOURS[event.status] : "planned", text: event.type, mark, about });
            if (!over && (event.started || event.duration_s > 0)) spans.push({ lane, from: begins, to: ends, colour: event.ended ? COLOURS[event.status] : "warn", text: "", about });
          }
        }
        const ahead = Math.max(present + 60, ...events.filter((event) => !event.ended).map((event) => until(event, present)));
        const from = Math.max(present - ctx.range * 60, Math.min(present - 300, ...spans.map((each) => each.from)) - 10);
        const to = Math.min(ahead, present + ctx.range * 60) + 10;
        const opened = events.filter((event) => !event.ended).sort((one, other) => begin(one) - begin(other));
        box.hidden = tip.hidden = legend.hidden = !spans.length;
        if (spans.length) chart.show(lanes, spans, from, to, `Maintenance of ${plural(lanes.length, "node")}: ${plural(opened.length, "open event")}`);
        const ended = events.filter((event) => event.ended).sort((one, other) => seconds(other.ended) - seconds(one.ended)).slice(0, OVER);
        const out = agents.filter((each) => each.disabled).map((each) => each.node);
        const alarms = new Set(events.filter((event) => !event.ended).flatMap((event) => event.alarms));
        sum.replaceChildren(`${plural(agents.length, "agent")}, ${plural(opened.length, "open event")}${more && ended.length === 0 ? " and more" : ""}. `, out.length ? badge(`out of service: ${out.join(", ")}`, "warn") : "", " ", alarms.size ? badge([...alarms].join(", "), "bad") : "");
        list.replaceChildren(...opened.slice(0, cards).map(card),
          ...(opened.length > cards ? [el("button", { type: "button", class: "further", "data-keep": "more", onclick: () => { cards = Infinity; refresh(); } }, `Show ${count(opened.length - cards)} more`)] : []), ...(ended.length ? [el("h3", {}, "Finished"),
          table("Finished events", ["type", "status", "nodes", "ended", "lasted", "alarms", ""], ended.map((event) => [el("span", { title: event.event_id }, event.type, event.rehearsal ? " (rehearsal)" : ""), badge(status(event), COLOURS[event.status]), Object.keys(event.nodes).join(", "), moment(event.ended), span(event.impact.lasted_ms), event.alarms.join(", "), storyOf(event)])),
          ...ended.filter((event) => event.probe && Object.keys(event.probe.phases).length).slice(0, MEASURED).map((event) => el("article", { class: "event", "data-event": event.event_id },
            el("header", {}, el("b", {}, event.type), badge(status(event), COLOURS[event.status]), event.rehearsal ? badge("rehearsal", "planned") : null, own(Object.keys(event.nodes).join(", "))), callers(event), el("p", { class: "dim" }, el("code", {}, event.event_id))))] : []));
      },
      end: chart.end,
    };
  },
};
