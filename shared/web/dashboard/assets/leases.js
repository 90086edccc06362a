// The panel of leases: partitions by server, the age of heartbeats, and hand-offs.

import { Refused, all, call, enc, present } from "./api.js";
import { badge, byId, count, el, facts, moment, open, own, plural, problem, span, table } from "./dom.js";

const KEPT = 12; // hand-offs shown

/** Return a fleet's nodes; all panels share one call. */
export const nodesOf = (ctx) => ctx.once("nodes", () => all(`v1/fleets/${enc(ctx.fleet)}/nodes`, ctx.query), { age: 4000 });

/** Return a load with four digits at most. */
const round = (load) => String(Number(load.toPrecision(4)));

/** Return one of twelve hues, always the same for a name. */
function hue(name) {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  return `hue${sum % 12}`;
}

/** Return each partition: its owner, the server that it is assigned to, and whether it is being released. */
function survey(fleet, nodes, intents) {
  const parts = Array.from({ length: fleet.partitions }, (_, number) => ({ number, owner: null, to: null, leaving: false, offline: false, load: null }));
  for (const node of nodes) {
    for (const number of Object.keys(node.partitions)) if (parts[number]) parts[number].owner = node.node;
    for (const [number, load] of Object.entries(node.loads ?? {})) if (parts[number]) parts[number].load = load;
    for (const number of node.assign) if (parts[number]) parts[number].to = node.node;
    for (const number of node.release) if (parts[number]) parts[number].leaving = true;
  }
  for (const each of intents) if (each.verb === "offline" && parts[each.target]) parts[each.target].offline = true;
  return parts;
}

export const leases = {
  id: "leases", title: "Partitions by server", view: "overview", needs: "fleets", every: () => 5000, fleet: true,
  async load(ctx, signal) {
    const fleet = enc(ctx.fleet);
    const [about, nodes, intents] = await Promise.all([
      call("GET", `v1/fleets/${fleet}`, { query: ctx.query, signal }),
      nodesOf(ctx),
      call("GET", `v1/fleets/${fleet}/leases/intents`, { query: ctx.query, signal }),
    ]);
    signal.throwIfAborted();
    return { fleet: about, parts: survey(about, nodes.items, intents.items), servers: nodes.items.filter((node) => node.beat), more: nodes.more, intents: intents.items };
  },
  build(body, ctx) {
    const sum = el("p", { class: "sum" });
    const map = el("div", { class: "map" });
    const find = el("input", { type: "number", min: 0, required: true, id: "find-partition", inputMode: "numeric" });
    const form = el("form", { class: "find" }, el("label", { for: "find-partition" }, "Partition"), find, el("button", { type: "submit" }, "Look up"));
    const legend = el("p", { class: "legend" }, [["nobody", "no owner"], ["offline", "offline"], ["leaving", "being released"], ["coming", "assigned to another server"]].map(([kind, text]) => el("span", {}, el("i", { class: `key ${kind}` }), text)));
    const moves = el("div", {});
    body.append(sum, map, legend, form, moves);
    let before = null;
    const handed = [];
    const groups = new Map(); // server -> {root, cells, ...}
    const cells = []; // partition -> cell

    let looked = null;
    const detail = async (number) => {
      const mine = (looked = {});
      const found = await call("GET", `v1/fleets/${enc(ctx.fleet)}/leases/${number}`, { query: ctx.query }).catch((error) => {
        if (!(error instanceof Refused)) throw error;
        return { error };
      });
      // Only the answer to the last request is shown, and only if no other dialog was opened since.
      if (mine !== looked || !map.isConnected || byId("details").open) return;
      open(`Partition ${number}`, found.error ? el("p", { class: "note wrong" }, problem(found.error))
        : facts([["state", found.state], ["owner", found.owner ?? "none"], ["epoch", found.epoch === null ? null : String(found.epoch)], ["since", moment(found.since)], ["heartbeat", found.beat_age_ms === null ? null : `${span(found.beat_age_ms)} ago`],
          ["load", found.load === null ? null : round(found.load)],
          ["manual controls", found.intents.map((each) => el("span", { class: "label" }, `${each.verb}: `, own(each.note), ` (${each.author})`))]]));
    };
    map.addEventListener("click", (event) => {
      const number = event.target.dataset?.partition;
      if (number !== undefined) detail(number);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      detail(find.value);
    });

    function group(name) {
      if (!groups.has(name)) {
        const made = { head: el("div", { class: "who" }), cells: el("div", { class: "cells" }) };
        made.root = el("div", { class: "server", "data-server": name }, made.head, made.cells);
        groups.set(name, made);
      }
      return groups.get(name);
    }

    function heads(servers) {
      for (const node of servers) {
        const { head } = group(node.node);
        const { state, age_ms: age, fault_domain: domain, capacity, endpoint } = node.beat;
        const badges = [state !== "live" ? badge(state, state === "dead" ? "bad" : "warn") : null, ...node.intents.map((each) => badge(each.to ? `${each.verb} to ${each.to}` : each.verb, "warn")), node.assign.length ? badge(`+${node.assign.length}`, "planned") : null, node.release.length ? badge(`−${node.release.length}`, "warn") : null];
        const [held, most] = [Object.keys(node.partitions).length, capacity || null];
        const load = Object.values(node.loads ?? {}).reduce((sum, each) => sum + each, 0);
        head.replaceChildren(...[el("span", { class: `swatch ${hue(node.node)}` }), el("b", { title: node.node }, node.node),
          el("span", { class: state === "dead" ? "age bad" : "age", title: "Age of the last heartbeat, by the clock of storage" }, `heartbeat ${span(age)} ago`),
          el("span", { class: "age" }, most ? `${held} of ${most}` : count(held)), load ? el("span", { class: "age", title: "Sum of the loads that the server publishes of its partitions" }, `load ${round(load)}`) : null, domain ? el("span", { class: "age domain", title: domain }, "domain ", own(domain)) : null, endpoint ? el("span", { class: "age", title: "Where it takes deliveries of fleet channels" }, own(endpoint)) : null, ...badges].filter(Boolean));
      }
    }

    function place(parts, order) {
      const wanted = new Map(order.map((name) => [name, []]));
      for (const part of parts) {
        const kind = part.owner ? hue(part.owner) : part.offline ? "offline" : "nobody";
        const state = part.leaving ? " leaving" : part.to && part.to !== part.owner ? " coming" : "";
        const cell = (cells[part.number] ??= el("span", { "data-partition": part.number }));
        const shown = `cell ${kind}${state}`;
        if (cell.className !== shown) cell.className = shown;
        const title = `${part.number}: ${part.owner ?? (part.offline ? "offline" : "no owner")}${part.to && part.to !== part.owner ? `, assigned to ${part.to}` : part.leaving ? ", being released" : ""}${part.load === null ? "" : `, load ${round(part.load)}`}`;
        if (cell.title !== title) cell.title = title;
        wanted.get(part.owner ?? "")?.push(cell);
      }
      cells.length = parts.length;
      for (const [name, those] of wanted) {
        const box = group(name).cells;
        // Only moved cells are touched, so that a thousand cells stay cheap.
        if (those.length !== box.childElementCount || those.some((cell, at) => box.children[at] !== cell)) box.replaceChildren(...those);
      }
      const roots = order.map((name) => group(name).root);
      if (roots.length !== map.childElementCount || roots.some((root, at) => map.children[at] !== root)) map.replaceChildren(...roots);
      for (const name of groups.keys()) if (!wanted.has(name)) groups.delete(name);
    }

    function watch(parts) {
      if (before && before.length === parts.length) {
        for (const part of parts) if (part.owner !== before[part.number]) handed.unshift({ number: part.number, from: before[part.number], to: part.owner, at: new Date(present()).toISOString() });
        handed.length = Math.min(handed.length, KEPT);
      }
      before = parts.map((part) => part.owner);
      moves.replaceChildren(...(handed.length ? [el("h3", {}, "Recent hand-offs"), table("Recent hand-offs", ["partition", "from", "to", "time"], handed.map((each) => [String(each.number), each.from ?? "none", each.to ?? "none", moment(each.at)]))] : []));
    }

    return {
      show({ fleet, parts, servers, more, intents }) {
        const [loose, off] = [parts.filter((each) => !each.owner && !each.offline).length, parts.filter((each) => !each.owner && each.offline).length];
        const going = parts.filter((each) => each.leaving || (each.to && each.to !== each.owner)).length;
        const living = servers.filter((each) => each.beat.state !== "dead");
        const stale = servers.filter((each) => each.beat.state === "dead").reduce((sum, each) => sum + Object.keys(each.partitions).length, 0);
        sum.replaceChildren(`${plural(fleet.partitions, "partition")}, ${plural(living.length, "server")}${more ? " and more" : ""}. `,
          loose ? badge(`${count(loose)} without an owner`, "bad") : stale ? "" : badge("all owned", "good"), " ", stale ? badge(`${count(stale)} owned by dead servers`, "bad") : "", " ", off ? badge(`${count(off)} offline`, "warn") : "", " ", going ? badge(`${count(going)} being handed off`, "planned") : "", " ",
          fleet.resizing ? badge("resizing", "warn") : "", " ", intents.length ? badge(plural(intents.length, "manual control"), "warn") : "");
        find.max = fleet.partitions - 1;
        const order = servers.filter((each) => each.beat.state !== "dead" || Object.keys(each.partitions).length).map((each) => each.node);
        heads(servers);
        if (loose || off) {
          group("").head.replaceChildren(el("span", { class: "swatch nobody" }), el("b", {}, "no owner"), el("span", { class: "age" }, count(loose + off)));
          order.unshift("");
        }
        place(parts, order);
        watch(parts);
      },
    };
  },
};
