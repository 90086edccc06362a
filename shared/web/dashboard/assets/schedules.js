// The view of schedules: their next occurrences and their state; new ones, and changes of those that there are.

import { Refused, all, call, enc, newId, present, repeatable } from "./api.js";
import { copyAs, reads } from "./copy.js";
import { badge, byId, chosenTime, confirm, count, el, facts, field, folded, localValue, moment, open, own, payloadHead, plural, policyText, problem, readFirst, table, tell } from "./dom.js";
import { member, pretty } from "./json.js";
import { likeSchedule, occurrencesTable, scheduleForm } from "./schedule_form.js";
import { duration } from "./times.js";

const STEP = 100; // schedules shown at first, and added by each press of the button
const COMING = 10; // next occurrences in the dialog

const rule = (schedule) => (schedule.cron ? `${schedule.cron} (${schedule.timezone ?? "UTC"})` : `every ${schedule.every}`);

function state(schedule) {
  if (schedule.missed) return [badge("missed", "bad"), " since ", moment(schedule.missed)];
  if (schedule.paused) return badge("paused", "warn");
  return schedule.next ? badge("active", "good") : badge("ended");
}

const path = (schedule) => `v1/schedules/${enc(schedule.id)}`;

const read = (ctx, schedule, act) => readFirst(schedule.id, path(schedule), ctx.query, act);

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
  const id = newId();
  confirm(`Trigger ${schedule.id}`, "One more event with the schedule's content is delivered now.", "Deliver one event now", async () => {
    const event = await repeatable(call("POST", `${path(schedule)}/trigger`, { query: ctx.query, body: { id } }));
    tell(`Event ${event.id} is due now.`);
    changed();
  });
}

/** Ask for the range of a backfill. */
function backfill(ctx, schedule, changed) {
  const id = newId();
  const [from, to] = [field("From", { type: "datetime-local", step: 1, required: true }), field("Before", { type: "datetime-local", step: 1, required: true, value: localValue(new Date(present()).toISOString()) })];
  const spread = field("Spread over", { placeholder: "PT1H; empty: all at once", maxLength: 20 });
  confirm(`Backfill ${schedule.id}`, "Each occurrence in the range gets an event now, whether it fired then or not: at most 1,000.", "Create the events", async () => {
    const made = await repeatable(call("POST", `${path(schedule)}/backfill`, { query: ctx.query, body: { id, from: chosenTime(from.input), to: chosenTime(to.input), ...(spread.input.value.trim() ? { spread: duration(spread.input.value) } : {}) } }));
    tell(`${plural(made.created, "event")} created${made.existing ? `; ${count(made.existing)} there already` : ""}.`);
    changed();
  }, from.box, to.box, spread.box);
}

/** Change the content in a form of its own, and come back. */
const edit = (ctx, schedule, changed) => read(ctx, schedule, (found) => scheduleForm(ctx, found, changed, (each) => showSchedule(ctx, each, changed)));

/** Ask before a schedule is deleted, as it was shown: another content is not deleted by mistake. */
const remove = (ctx, schedule, changed) => read(ctx, schedule, ({ etag }) => {
  const keep = field("Deliver overdue occurrences all the same", { type: "checkbox" });
  confirm(`Delete ${schedule.id}`, "No later occurrence is delivered. This cannot be undone; a delivery in progress goes on.", "Delete the schedule", async () => {
    await call("DELETE", path(schedule), { query: { ...ctx.query, overdue: keep.input.checked ? "keep" : "" }, match: etag });
    tell(`${schedule.id} is deleted.`);
    changed();
  }, keep.box);
});

/** Return buttons for what may be done with a schedule. */
function acts(ctx, schedule, changed) {
  const button = (name, doing) => el("button", { type: "button", "data-keep": `${doing.name} ${schedule.id}`, "aria-label": `${name} ${schedule.id}`, onclick: () => doing(ctx.pinned(), schedule, changed) }, name);
  return [button(schedule.paused ? "Resume" : "Pause", turn), button("Edit", edit), button("Trigger", trigger), button("Backfill", backfill), button("Delete", remove)];
}

const callbacks = (schedule) => [schedule.on_delivered && `delivered: ${schedule.on_delivered}`, schedule.on_dead && `dead: ${schedule.on_dead}`].filter(Boolean).join(", ");
const channels = (schedule) => own((schedule.channels ?? [schedule.channel]).join(", "));

/** Open a dialog with everything that is known of a schedule, and its next occurrences. */
async function showSchedule(ctx, schedule, changed) {
  ctx = ctx.pinned();
  const next = el("div", {}, el("p", { class: "note" }, "Loading …"));
  const skipped = el("span", {});
  const rest = el("div", {});
  open(own(schedule.id),
    ctx.may("events") ? el("p", { class: "actions" }, acts(ctx, schedule, changed)) : "",
    facts([["state", state(schedule)], ["rule", own(rule(schedule))], ["read as", schedule.reads_as && own(schedule.reads_as)], ["start", schedule.start && moment(schedule.start)], ["end", schedule.end && moment(schedule.end)], ["jitter", schedule.jitter],
      ["catch-up", `${schedule.catch_up.policy}, within ${schedule.catch_up.within}`], ["excluded", schedule.exclude && own([...(schedule.exclude.calendars ?? []), ...(schedule.exclude.dates ?? [])].join(", "))],
      ["at most once per", schedule.at_most_once_per], ["overlap", schedule.overlap && [schedule.overlap, skipped]], ["time-out", schedule.timeout], ["retry", schedule.retry && own(policyText(schedule.retry))], ["ordering key", schedule.ordering_key && own(schedule.ordering_key)],
      ["channel", channels(schedule)], ["callbacks", callbacks(schedule) && own(callbacks(schedule))], ["last", moment(schedule.last)], ["created", moment(schedule.created)]]),
    el("h3", {}, schedule.paused ? "Occurrences that it would have" : "Next occurrences"), next, rest);
  byId("details").classList.add("wide");
  try {
    // Only the schedule by itself says what was skipped, and has the payload as it is written.
    const [{ items }, found] = await Promise.all([call("GET", `${path(schedule)}/preview`, { query: { ...ctx.query, n: COMING } }), call("GET", path(schedule), { query: ctx.query, whole: true })]);
    const some = found.data.skipped;
    if (some) skipped.append(`, ${plural(some.count, "occurrence")} skipped, the last due `, moment(some.last));
    next.replaceChildren(items.length ? occurrencesTable(items, schedule.cron) : el("p", {}, "The schedule has ended: it has no further occurrence."));
    rest.replaceChildren(payloadHead(found.data.content_type), el("pre", { tabIndex: 0, role: "region", "aria-label": "Payload" }, pretty(member(found.text, "payload"))),
      copyAs({ "This schedule": () => likeSchedule(ctx, found), "Read it": () => reads(ctx, "schedules", schedule.id) }).root);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    next.replaceChildren(el("p", { class: "note wrong" }, problem(error)));
  }
}

/** Open the form of a new schedule, and then the schedule. */
function newSchedule(ctx) {
  const mine = ctx.pinned();
  scheduleForm(mine, null, ctx.acted, (each) => showSchedule(mine, each, ctx.acted));
}

export const schedules = {
  id: "schedules", title: "Schedules", view: "schedules", needs: "events", every: () => 60_000,
  tools: (ctx) => el("div", { class: "tools" },
    ctx.may("events") && el("p", { class: "new" }, el("button", { type: "button", class: "primary", "data-keep": "new", onclick: () => newSchedule(ctx) }, "New schedule")),
    el("p", { class: "about" }, "Heartbeat monitors are events whose ids begin with ", el("code", {}, "heartbeat:"), ". ",
      el("button", { type: "button", onclick: () => ctx.open("events", { filters: { id_prefix: "heartbeat:" } }) }, "Show heartbeat monitors"))),
  still: (data) => JSON.stringify(data),
  load: (ctx, signal) => all("v1/schedules", ctx.query, signal, (ctx.listed ??= STEP)),
  empty: ({ items, more }) => (items.length || more ? null : "There are no schedules. Create one with New schedule, or PUT /api/v1/schedules/{id}."),
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
