// The panel of administrative calls: who changed what, from what to what. Only for an admin key.

import { all } from "./api.js";
import { badge, cut, el, moment, open, own, plural, table } from "./dom.js";

const STEP = 25; // calls shown at first, and added by each press of the button
const NAMED = 2; // changes that a row names; its dialog shows all
const OUTCOMES = { done: "good", refused: "warn", unknown: "bad" };

const changeText = (change) => `${change.field}: ${change.before ?? "none"} → ${change.after ?? "none"}`;

/** Open a dialog with everything that is known of a call. */
function showCall(call) {
  open(call.action,
    el("p", {}, `${call.path}, by ${call.by}, `, moment(call.at), `: ${call.outcome}${call.status ? ` (${call.status})` : ""}`),
    call.changes.length ? table("Changes", ["field", "before", "after"], call.changes.map((each) => [own(each.field), own(each.before ?? "none"), own(each.after ?? "none")])) : el("p", {}, "No changed fields are recorded."));
}

export const audit = {
  id: "audit", title: "Administrative calls", view: "audit", needs: "admin", every: () => 30_000,
  still: ({ items, more }) => JSON.stringify([more, items]),
  load: (ctx, signal) => all("v1/audit", {}, signal, (ctx.calls ??= STEP), 10),
  empty: ({ items }) => (items.length ? null : "There are no administrative calls from the last year."),
  build(body, ctx, refresh) {
    const list = el("div", {});
    body.append(list);
    const row = (each) => {
      const shown = each.changes.slice(0, NAMED).map(changeText).join("; ") + (each.changes.length > NAMED ? `; and ${plural(each.changes.length - NAMED, "other")}` : "");
      return [el("button", { type: "button", class: "link", "data-keep": `open ${each.at} ${each.path}`, onclick: () => showCall(each) }, each.action),
        moment(each.at), own(each.by), own(each.tenant ?? "–"), badge(each.outcome === "refused" ? `refused (${each.status})` : each.outcome, OUTCOMES[each.outcome]), own(cut(shown || each.path, 120))];
    };
    return {
      end() {
        ctx.calls = STEP;
      },
      show({ items, more }) {
        list.replaceChildren(
          table("Administrative calls", ["call", "at", "by", "tenant", "outcome", "changes"], items.map(row)),
          more ? el("button", { type: "button", class: "further", "data-keep": "more", onclick: () => { ctx.calls = items.length + STEP; refresh(); } }, `Show ${STEP} more`) : "");
      },
    };
  },
};
