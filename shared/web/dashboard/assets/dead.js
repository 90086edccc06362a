// Events that are retried and those that are dead, and bringing them back.

import { Refused, all, call, enc } from "./api.js";
import { badge, count, cut, el, facts, moment, open, plural, say, span, table } from "./dom.js";

const MOST = 100;
const PAGES = 10; // a page of the search is 40 shards at most
const DAY = 86_400_000;
const SURE = 15_000; // ms in which the second click counts

const last = (event) => (event.attempts ?? []).at(-1);
const why = (event) => {
  const tried = last(event);
  return [tried?.status, tried?.error ?? event.error].filter(Boolean).join(" ") || "–";
};

/** All that is known of an event. */
function tell(event) {
  const tried = (event.attempts ?? []).map((each) => [moment(each.at), each.outcome, each.status ?? "–", each.error ?? "", span(each.took_ms)]);
  open(event.id,
    facts([["state", event.state], ["due", moment(event.due)], ["created", moment(event.created)], ["channel", event.channel], ["next attempt", event.next_attempt && moment(event.next_attempt)], ["error", event.error],
      ["labels", event.labels && Object.entries(event.labels).map(([name, value]) => el("span", { class: "label" }, `${name}=${value}`))]]),
    el("h3", {}, "Payload"), el("pre", { tabIndex: 0 }, JSON.stringify(event.payload, null, 2) ?? "–"),
    el("h3", {}, "Attempts"), table("Attempts", ["at", "outcome", "status", "error", "took"], tried));
}

export const dead = {
  id: "dead", title: "Retries and dead letters", every: 5000, still: true,
  async load(ctx, signal) {
    // Without an end the search would read all that is planned, where nothing can be dead.
    const when = { from: new Date(Date.now() - DAY).toISOString(), to: new Date(Date.now() + 60_000).toISOString() };
    const [dead, stats] = await Promise.all([all("v1/dead-letters", { ...ctx.query, ...when }, signal, MOST, PAGES), call("GET", "v1/stats", { query: ctx.query, signal })]);
    // The list of retried events is a search: it is made when there is something to find.
    const retried = stats.retrying ? (await all("v1/events", { ...ctx.query, ...when, state: "retrying" }, signal, MOST, PAGES)).items : [];
    return { dead: dead.items, more: dead.more, retried, retrying: stats.retrying };
  },
  empty: ({ dead, more, retrying }) => (dead.length || retrying ? null : `No dead letters of the last 24 hours${more ? " in the part that was searched" : ""}, and nothing is being retried.`),
  build(body, ctx, refresh) {
    const said = el("p", { class: "note", role: "alert", hidden: true });
    const retries = el("div", {});
    const letters = el("div", {});
    body.append(said, retries, letters);
    const busy = new Set();
    let sure = false;
    let disarm = null;

    const failed = (error) => {
      if (!(error instanceof Refused)) throw error;
      said.hidden = false;
      said.className = "note wrong";
      said.textContent = `${error.title}: ${error.detail}`;
    };
    const redrive = async (event, button) => {
      button.disabled = true;
      busy.add(event.id);
      said.hidden = true;
      try {
        await call("POST", `v1/events/${enc(event.id)}/redrive`, { query: ctx.query });
        say(`${event.id} is brought back.`);
      } catch (error) {
        failed(error);
      }
      busy.delete(event.id);
      await refresh();
    };
    const redriveAll = async (button) => {
      if (!sure) {
        sure = true;
        button.textContent = "Really redrive all of them?";
        button.classList.add("danger");
        clearTimeout(disarm);
        disarm = setTimeout(() => {
          sure = false;
          refresh();
        }, SURE);
        return;
      }
      button.disabled = true;
      said.hidden = true;
      try {
        const { redriven } = await call("POST", "v1/dead-letters/redrive", { query: ctx.query, body: { from: new Date(Date.now() - DAY).toISOString() } });
        say(`${plural(redriven, "event")} brought back.`);
      } catch (error) {
        failed(error);
      }
      sure = false;
      clearTimeout(disarm);
      await refresh();
    };
    const name = (event) => el("button", { type: "button", class: "link", "data-keep": event.id, onclick: () => tell(event), title: event.id }, cut(event.id, 40));
    const row = (event) => [name(event), event.channel ?? "–", moment(event.due), count(event.attempts?.length), el("span", { class: "why", title: why(event) }, cut(why(event), 90))];

    return {
      end: () => clearTimeout(disarm),
      show({ dead, more, retried, retrying }) {
        retries.replaceChildren(...(retrying ? [el("h3", {}, `${plural(retrying, "event")} being retried`),
          table("Events being retried", ["event", "channel", "due", "attempts", "last answer", "next"], retried.map((event) => [...row(event), event.next_attempt ? moment(event.next_attempt) : event.held ? badge("held", "warn") : "–"]))] : []));
        if (!dead.length) sure = false;
        letters.replaceChildren(...(dead.length ? [
          el("h3", {}, `${count(dead.length)}${more ? "+" : ""} dead, due in the last 24 hours`, " ",
            el("button", { type: "button", class: sure ? "danger" : "", "data-keep": "*", onclick: (event) => redriveAll(event.currentTarget) }, sure ? "Really redrive all of them?" : "Redrive all")),
          table("Dead letters", ["event", "channel", "due", "attempts", "last answer", ""], dead.map((event) => [...row(event),
            el("button", { type: "button", "data-keep": `redrive ${event.id}`, disabled: busy.has(event.id), "aria-label": `Redrive ${event.id}`, onclick: (click) => redrive(event, click.currentTarget) }, "Redrive")])),
        ] : []));
      },
    };
  },
};
