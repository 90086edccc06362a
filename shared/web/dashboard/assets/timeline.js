// The history of an event as a time-line: stored, due, what it waited for, its attempts with their answers, its end and its callback.

import { Refused, call, enc, present } from "./api.js";
import { badge, el, facts, own, plural, span } from "./dom.js";
import { chosenZone, distance, durationMs, textIn, zoneChoice } from "./times.js";

const KEPT = 20; // attempts that the service keeps
const OUTCOMES = { delivered: ["delivered", "good"], retry: ["failed, will be retried", "warn"], final: ["failed for good", "bad"], unknown: ["outcome unknown", "warn"], working: ["accepted: the receiver works on it", "planned"], stale: ["too late", ""] };

/** Return the receiver's answer to an attempt, closed at first; its head and body are texts. */
function answer(found) {
  if (!found) return null;
  const text = found.body ?? "";
  return el("details", {},
    el("summary", {}, "Answer: ", [found.content_type ? own(found.content_type) : "", text ? ` ${plural(text.length, "character")}` : " no body", found.truncated ? ", cut" : ""]),
    found.headers ? facts(Object.entries(found.headers).map(([name, value]) => [own(name), own(String(value))])) : null,
    text ? el("pre", { tabIndex: 0, "aria-label": "Body of the answer", role: "region" }, text) : null);
}

const heldText = (held) => [own(held.reason), held.behind ? [", behind ", own(held.behind)] : "", held.detail ? [": ", own(held.detail)] : ""];
const ms = (text) => (text ? Date.parse(text) : null);

/** Return the steps of an event: `at` in ms, or null for a step without a time of its own, which stays behind the one before. `link(id)` makes a button that opens an event. */
export function stepsOf(event, callback, link, now = present()) {
  const [created, due] = [ms(event.created), ms(event.due)];
  const [from, ended] = [ms(event.planned) ?? due, ["delivered", "dead", "lapsed", "cancelled"].includes(event.state)];
  const steps = [];
  const step = (at, title, kind, ...more) => steps.push({ at, title, kind, more: more.filter(Boolean) });
  step(created, event.state === "queued" ? "Accepted, waits to be stored" : "Stored", "", event.callback_of && ["callback of ", link(event.callback_of)], event.fanout && ["of the fan-out ", link(event.fanout)], created > due && `${span(created - due)} after it was due`);
  step(due, due <= now ? "Due" : ended ? "Would have been due" : "Will be due", due > now && !ended ? "planned" : "", event.channel && ["channel ", own(event.channel)]);
  if (event.planned) step(from, "Planned time in its window", from > now ? "planned" : "", event.flex && `window of ${span(durationMs(event.flex))}`);
  const attempts = event.attempts ?? [];
  if (event.late_because?.length) step(null, `Waited ${span(event.late_because.reduce((sum, each) => sum + each.ms, 0))}`, "warn", el("ul", { class: "reasons" }, event.late_because.map((each) => el("li", {}, own(each.text)))));
  attempts.forEach((each, at) => {
    const [text, kind] = OUTCOMES[each.outcome] ?? [each.outcome, ""];
    const number = attempts.length < KEPT ? ` ${at + 1}` : at ? "" : `, one of the last ${KEPT}`;
    step(ms(each.at), [`Attempt${number}: `, each.status ? `${each.status} ` : "", text], kind, each.error && own(each.error), `took ${span(each.took_ms)}`, answer(each.answer));
  });
  if (event.work) step(ms(event.work.last_heartbeat) ?? ms(event.work.since), "The receiver works on it", "planned", plural(event.work.heartbeats, "heartbeat"), `silence until its deadline ${distance(ms(event.work.deadline), now)} is a failed attempt`);
  // Future steps come after past ones.
  if (event.held) step(event.held.since ? ms(event.held.since) : null, "Waits now", "warn", ["held: ", heldText(event.held)], event.held.until && `${distance(ms(event.held.until), now)} it may be tried`);
  if (event.next_attempt) step(ms(event.next_attempt), "Next attempt", "planned");
  const last = attempts.at(-1);
  const lastEnd = last ? ms(last.at) + last.took_ms : null;
  if (event.state === "delivered") step(ms(event.delivered_at) ?? lastEnd, "Delivered", "good", event.late_ms !== undefined && event.late_ms !== null && `${span(event.late_ms)} after ${event.planned ? "the planned time" : created > due ? "it was stored" : "it was due"}`);
  if (event.state === "dead") step(lastEnd, "Dead: it is not tried again", "bad", event.error && own(event.error));
  if (event.state === "lapsed") step(event.expires ? due + durationMs(event.expires) : lastEnd, "Lapsed: it was not delivered in time", "bad", event.error && own(event.error));
  if (event.state === "cancelled") step(null, "Cancelled: it is never delivered", "", event.error && own(event.error));
  if (!ended && event.expires) step(due + durationMs(event.expires), "Lapses if it is not delivered by then", "planned");
  if (event.callback) step(ms(callback?.created), "Callback", callback?.state === "delivered" ? "good" : callback?.state === "dead" ? "bad" : "", link(event.callback), callback ? [" ", badge(callback.state), callback.delivered_at ? ` ${distance(ms(callback.delivered_at), now)}` : ""] : "");
  return steps;
}

/** Order steps by time; a step without a time stays behind the one before it. */
export function inOrder(steps) {
  let before = -Infinity;
  const timed = steps.map((each) => ({ ...each, key: (before = each.at ?? before) }));
  return timed.sort((one, other) => one.key - other.key);
}

/** Create the time-line of an event. `link(id)` makes a button that opens another event. */
export function timeline(ctx, event, link) {
  const list = el("ol", { class: "timeline" });
  let callback = null;
  function draw() {
    const zone = chosenZone();
    let before = null;
    list.replaceChildren(...inOrder(stepsOf(event, callback, link)).map(({ at, title, kind, more }) => {
      const since = at === null || before === null || at <= before || at > present() ? "" : `, ${span(at - before)} later`;
      before = at ?? before;
      return el("li", { class: kind }, el("p", { class: "step" }, el("b", {}, title), " ", at === null ? "" : el("span", { class: "age" }, el("time", { dateTime: new Date(at).toISOString() }, `${textIn(at, zone)}.${String(at % 1000).padStart(3, "0")}`), ` · ${distance(at)}${since}`)),
        more.length ? el("div", { class: "what" }, more.map((each) => (each instanceof Element && ["UL", "DETAILS"].includes(each.tagName) ? each : el("span", {}, each)))) : null);
    }));
  }
  draw();
  if (event.callback) {
    call("GET", `v1/events/${enc(event.callback)}`, { query: ctx.query }).then((found) => {
      callback = found;
      draw();
    }, (error) => {
      // The callback may have been removed; its id is shown.
      if (!(error instanceof Refused)) throw error;
    });
  }
  return el("section", { "aria-label": "Time-line" }, el("header", { class: "head" }, el("h3", {}, "Time-line"), zoneChoice(draw)), list);
}
