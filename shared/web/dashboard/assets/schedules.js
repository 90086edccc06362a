// The view of schedules: their next occurrences and their state; pause, resume, one more event, and backfill.

import { Refused, all, call, enc, present } from "./api.js";
import { badge, chosenTime, confirm, count, el, facts, field, folded, localValue, moment, open, own, plural, problem, table, tell } from "./dom.js";

const STEP = 100; // schedules shown at first, and added by each press of the button
const COMING = 10; // next occurrences in the dialog
const REASONS = { gap: "The local time does not exist on this day.", fold: "The local time exists twice on this day; this is the first." };

const rule = (schedule) => (schedule.cron ? `${schedule.cron} (${schedule.timezone ?? "UTC"})` : `every ${schedule.every}`);

function state(schedule) {
  if (schedule.missed) return [badge("missed", "bad"), " since ", moment(schedule.missed)];
  if (schedule.paused) return badge("paused", "warn");
  return schedule.next ? badge("active", "good") : badge("ended");
}

const path = (schedule) => `v1/schedules/${enc(schedule.id)}`;

/** Ask before a pause, because its occurrences are dropped; a resume is carried out at once. */
function turn(ctx, schedule, changed) {
  const act = schedule.paused ? "resume" : "pause";
  const send = async () => {
    await call("POST", `${path(schedule)}/${act}`, { query: ctx.query });
    tell(`${schedule.id} is ${act}d.`);
    changed();
  };
  const late = schedule.catch_up?.policy === "all" ? "Those before the pause that have no event yet fire as well." : "Those of the pause never fire.";
  confirm(`${schedule.paused ? "Resume" : "Pause"} ${schedule.id}`, schedule.paused ? `It continues with the first occurrence from now. ${late}` : "No later occurrence is delivered until you resume it. The occurrences of the pause never fire.", schedule.paused ? "Resume" : "Pause", send);
}

/** Ask before one more event. */
function trigger(ctx, schedule, changed) {
  confirm(`Trigger ${schedule.id}`, "One more event with the schedule's content is delivered now.", "Deliver one event now", async () => {
    const event = await call("POST", `${path(schedule)}/trigger`, { query: ctx.query });
    tell(`Event ${event.id} is due now.`);
    changed();
  });
}

/** Ask for the range of a backfill. */
function backfill(ctx, schedule, changed) {
  const [from, to] = [field("From", { type: "datetime-local", step: 1, required: true }), field("Before", { type: "datetime-local", step: 1, required: true, value: localValue(new Date(present()).toISOString()) })];
  const spread = field("Spread over", { placeholder: "PT1H; empty: all at once", maxLength: 20 });
  confirm(`Backfill ${schedule.id}`, "Each occurrence in the range gets an event now, whether it fired then or not: at most 1,000.", "Create the events", async () => {
    const made = await call("POST", `${path(schedule)}/backfill`, { query: ctx.query, body: { from: chosenTime(from.input), to: chosenTime(to.input), ...(spread.input.value.trim() ? { spread: spread.input.value.trim() } : {}) } });
    tell(`${plural(made.created, "event")} created.`);
    changed();
  }, from.box, to.box, spread.box);
}

/** Return buttons for what may be done with a schedule. */
function acts(ctx, schedule, changed) {
  const button = (name, doing) => el("button", { type: "button", "data-keep": `${doing.name} ${schedule.id}`, "aria-label": `${name} ${schedule.id}`, onclick: () => doing(ctx, schedule, changed) }, name);
  return [button(schedule.paused ? "Resume" : "Pause", turn), button("Trigger", trigger), button("Backfill", backfill)];
}

const callbacks = (schedule) => [schedule.on_delivered && `delivered: ${schedule.on_delivered}`, schedule.on_dead && `dead: ${schedule.on_dead}`].filter(Boolean).join(", ");
const channels = (schedule) => own((schedule.channels ?? [schedule.channel]).join(", "));

/** Open a dialog with everything that is known of a schedule, and its next occurrences. */
async function showSchedule(ctx, schedule, changed) {
  const next = el("div", {}, el("p", { class: "note" }, "Loading …"));
  const skipped = el("span", {});
  open(own(schedule.id),
    ctx.may("events") ? el("p", { class: "actions" }, acts(ctx, schedule, changed)) : "",
    facts([["state", state(schedule)], ["rule", own(rule(schedule))], ["start", schedule.start && moment(schedule.start)], ["end", schedule.end && moment(schedule.end)], ["jitter", schedule.jitter],
      ["catch-up", `${schedule.catch_up.policy}, within ${schedule.catch_up.within}`], ["excluded", schedule.exclude && own([...(schedule.exclude.calendars ?? []), ...(schedule.exclude.dates ?? [])].join(", "))],
      ["at most once per", schedule.at_most_once_per], ["overlap", schedule.overlap && [schedule.overlap, skipped]], ["ordering key", schedule.ordering_key && own(schedule.ordering_key)],
      ["channel", channels(schedule)], ["callbacks", callbacks(schedule) && own(callbacks(schedule))], ["last", moment(schedule.last)], ["created", moment(schedule.created)]]),
    el("h3", {}, schedule.paused ? "Occurrences that it would have" : "Next occurrences"), next,
    el("h3", {}, "Payload"), el("pre", { tabIndex: 0, role: "region", "aria-label": "Payload" }, JSON.stringify(schedule.payload, null, 2) ?? "–"));
  try {
    // Only the schedule by itself says what was skipped.
    const counted = schedule.overlap === "skip" ? call("GET", path(schedule), { query: ctx.query }) : {};
    const [{ items }, { skipped: some }] = await Promise.all([call("GET", `${path(schedule)}/preview`, { query: { ...ctx.query, n: COMING } }), counted]);
    if (some) skipped.append(`, ${plural(some.count, "occurrence")} skipped, the last due `, moment(some.last));
    next.replaceChildren(items.length ? table("Next occurrences", ["at", "in its time zone", "note"], items.map((each) => [moment(each.at), each.local ?? "", REASONS[each.reason] ?? ""])) : el("p", {}, "The schedule has ended: it has no further occurrence."));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    next.replaceChildren(el("p", { class: "note wrong" }, problem(error)));
  }
}

export const schedules = {
  id: "schedules", title: "Schedules", view: "schedules", needs: "events", every: () => 60_000,
  tools: (ctx) => el("p", { class: "about tools" }, "Heartbeat monitors are events whose ids begin with ", el("code", {}, "heartbeat:"), ". ",
    el("button", { type: "button", onclick: () => ctx.open("events", { filters: { id_prefix: "heartbeat:" } }) }, "Show heartbeat monitors")),
  still: (data) => JSON.stringify(data),
  load: (ctx, signal) => all("v1/schedules", ctx.query, signal, (ctx.listed ??= STEP)),
  empty: ({ items, more }) => (items.length || more ? null : "There are no schedules. Create one with PUT /api/v1/schedules/{id}."),
  build(body, ctx, refresh) {
    const sum = el("p", { class: "sum" });
    const list = el("div", {});
    body.append(sum, list);
    const name = (schedule) => el("button", { type: "button", class: "link", "data-keep": `open ${schedule.id}`, title: schedule.id, onclick: () => showSchedule(ctx, schedule, ctx.acted) }, folded(schedule.id, 40));
    const row = (schedule) => [name(schedule), own(rule(schedule)), state(schedule), schedule.next ? moment(schedule.next) : "–", moment(schedule.last), channels(schedule),
      ...(ctx.may("events") ? [el("span", { class: "actions" }, acts(ctx, schedule, ctx.acted)[0])] : [])];
    return {
      end() {
        ctx.listed = STEP;
      },
      show({ items, more }) {
        const ended = items.filter((each) => !each.paused && !each.next).length;
        const [paused, missed] = [items.filter((each) => each.paused).length, items.filter((each) => each.missed).length];
        const some = more ? `Showing ${plural(items.length, "schedule")}; there are more.` : `${plural(items.length, "schedule")}.`;
        sum.replaceChildren(some, ...[[missed, "missed", "bad"], [paused, "paused", "warn"], [ended, "ended", ""]].filter(([number]) => number).flatMap(([number, text, kind]) => [" ", badge(`${count(number)} ${text}`, kind)]));
        const sorted = [...items].sort((one, other) => Boolean(other.missed) - Boolean(one.missed) || (one.next ?? "~").localeCompare(other.next ?? "~") || one.id.localeCompare(other.id));
        list.replaceChildren(table("Schedules", ["schedule", "rule", "state", "next", "last", "channel", ...(ctx.may("events") ? [""] : [])], sorted.map(row)),
          more ? el("button", { type: "button", class: "further", "data-keep": "more", onclick: () => { ctx.listed = items.length + STEP; refresh(); } }, `Show ${STEP} more`) : "");
      },
    };
  },
};
