// The view of all tenants, for an admin key: those that need a person, the worst first. A click shows the tenant.

import { overview } from "./api.js";
import { badge, clock, count, el, own, plural, seconds, table } from "./dom.js";

const PAGE = 50; // tenants shown at first
/** Return the number of tenants that the next press adds: as many as are shown, so that thousands need few presses. */
const step = (items) => Math.max(PAGE, items.length);
const COLOURS = { urgent: "bad", soon: "warn", later: "", none: "good" };
const STATES = { paused: "paused", "breaker-open": "circuit breaker open", "breaker-half-open": "circuit breaker half-open" };

/** Return what a tenant needs, as labels. */
function needs(each) {
  const label = (text, kind) => el("span", { class: "label" }, badge(text, kind));
  const figure = (number, text, kind) => number > 0 && label(`${count(number)} ${text}`, kind);
  const blocked = each.blocked.slice(0, 2).map(({ channel, state }) => el("span", { class: "label" }, own(channel), " ", badge(STATES[state] ?? state, "warn")));
  return [
    figure(each.stuck, "stuck", "bad"), figure(each.overdue - each.stuck, "overdue", "bad"), figure(each.dead, "dead, 24 h", "bad"), blocked,
    figure(each.blocked_channels - blocked.length, `more blocked ${each.blocked_channels - blocked.length === 1 ? "channel" : "channels"}`, "warn"),
    each.fleets > 0 && label(`${plural(each.fleets, "fleet")} with alarms`, each.urgent_fleets ? "bad" : "warn"),
  ];
}

export const tenants = {
  id: "tenants", title: "All tenants", view: "tenants", needs: "admin", every: () => 10_000,
  load: (ctx, signal) => overview("v1/tenant-overview", {}, signal, ctx.tenantsShown ?? PAGE),
  still: (data) => JSON.stringify(data),
  empty: ({ tenants: number }) => (number ? null : "There are no tenants yet. Create one: tocsin tenants put NAME"),
  build(body, ctx, refresh) {
    const sum = el("p", { class: "sum" });
    const list = el("div", {});
    body.append(sum, list);
    const row = (each) => [
      el("button", { type: "button", class: "link", "data-keep": `tenant ${each.tenant}`, title: "Show this tenant", onclick: () => ctx.visit(each.tenant) }, each.tenant),
      badge(each.urgency === "none" ? "quiet" : each.urgency, COLOURS[each.urgency]), needs(each), count(each.retrying), count(each.open),
    ];
    return {
      end() {
        ctx.tenantsShown = PAGE;
      },
      show({ items, next, tenants: number, quiet, read_at: at, incomplete }) {
        const concerned = number - quiet;
        sum.replaceChildren(`${plural(number, "tenant")}. `,
          concerned ? badge(`${count(concerned)} ${concerned === 1 ? "needs" : "need"} attention`, items[0]?.urgency === "urgent" ? "bad" : "warn") : badge("none needs attention", "good"),
          ...(concerned && quiet ? [" ", badge(`${count(quiet)} quiet`, "good")] : []), ` Counted at ${clock(seconds(at), true)}.`,
          incomplete ? " Not everything could be counted: some figures are not exact." : "");
        list.replaceChildren(table("Tenants", ["tenant", "urgency", "needs", "retrying", "open"], items.map(row)),
          next ? el("button", { type: "button", class: "further", "data-keep": "more", onclick: () => { ctx.tenantsShown = items.length + step(items); refresh(); } }, `Show ${count(Math.min(step(items), number - items.length))} more`) : "");
      },
    };
  },
};
