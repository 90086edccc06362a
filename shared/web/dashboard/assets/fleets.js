// The panel of all fleets: those that need a person, the most urgent first, and the number of the others.

import { overview } from "./api.js";
import { badge, count, el, moment, own, plural, table } from "./dom.js";

const PAGE = 50; // fleets that are shown at first, and added by each "Show more"
const COLOURS = { urgent: "bad", soon: "warn", later: "" };

export const fleets = {
  id: "fleets", title: "Fleets", view: "overview", needs: "fleets", fleet: "list", every: () => 10_000,
  async load(ctx, signal) {
    const found = await overview("v1/fleet-overview", ctx.query, signal, ctx.shown ?? PAGE);
    return { ...found, chosen: ctx.fleet };
  },
  still: (data) => JSON.stringify(data),
  build(body, ctx, refresh) {
    const sum = el("p", { class: "sum" });
    const list = el("div");
    body.append(sum, list);

    /** Show a need with its first subjects. */
    function need(each, colour) {
      const names = each.subjects.slice(0, 3);
      return el("span", { class: "label", title: each.subjects.join(", ") }, badge(each.text ?? `${count(each.count)} ${each.what}`, colour), names.length ? [" ", own(names.join(", ")), each.count > names.length ? " …" : ""] : "");
    }

    function row(each, chosen) {
      const pick = el("button", { type: "button", class: "link", "data-keep": `fleet ${each.fleet}`, "aria-pressed": String(each.fleet === chosen), title: "Show this fleet in the panels below", onclick: () => ctx.pick(each.fleet) }, each.fleet);
      const since = each.needs.map((one) => one.since).filter(Boolean).sort()[0];
      return [pick, badge(each.urgency, COLOURS[each.urgency]), each.needs.map((one) => need(one, COLOURS[each.urgency])), since ? moment(since) : "", each.open_events ? count(each.open_events) : "", each.agents ? count(each.agents) : ""];
    }

    return {
      show({ items, next, fleets, quiet, in_maintenance: busy, chosen }) {
        const concerned = fleets - quiet;
        sum.replaceChildren(`${plural(fleets, "fleet")}. `, concerned ? badge(`${count(concerned)} ${concerned === 1 ? "needs" : "need"} attention`, items[0]?.urgency === "urgent" ? "bad" : "warn") : badge("none needs attention", "good"),
          ...(concerned ? [" ", badge(`${count(quiet)} quiet`, "good")] : []), ...(busy ? [" ", badge(`${count(busy)} with open Scheduled Events`, "planned")] : []));
        list.replaceChildren(...(items.length ? [table("Fleets that need attention", ["fleet", "urgency", "needs", "since", "open events", "agents"], items.map((each) => row(each, chosen)))] : []),
          ...(next ? [el("button", { type: "button", class: "further", "data-keep": "more", onclick: () => { ctx.shown = items.length + PAGE; refresh(); } }, `Show ${count(Math.min(PAGE, concerned - items.length))} more`)] : []));
      },
    };
  },
};
