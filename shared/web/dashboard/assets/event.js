// One event in a dialog: its state, its history as a time-line, and its actions.

import { Refused, call, enc } from "./api.js";
import { copyAs, reads } from "./copy.js";
import { badge, byId, chosenTime, el, facts, field, isShown, localValue, moment, open, own, payloadHead, policyText, problem, span, table, tell } from "./dom.js";
import { editEvent, likeEvent } from "./event_form.js";
import { conflictNote } from "./form.js";
import { member, pretty } from "./json.js";
import { timeline } from "./timeline.js";

export const STATES = { queued: "planned", scheduled: "planned", firing: "warn", working: "warn", retrying: "warn", delivered: "good", dead: "bad", cancelled: "", lapsed: "bad" };
const WAITS = ["scheduled", "retrying"];
const ID = /^[A-Za-z0-9_:@~.-]*[A-Za-z0-9_:@~-]$/; // no dots alone, which mean another path

/** What may be done with an event in some states. `send(ctx, id, time)` makes the call; `done`: the text afterwards. */
const ACTIONS = [
  { name: "Edit", in: WAITS },
  { name: "Cancel", in: ["queued", ...WAITS], act: "Cancel the event", about: "The event will not be delivered. This cannot be undone.", danger: true, done: "is cancelled", method: "DELETE", path: "", matches: true },
  { name: "Move", in: WAITS, act: "Move the event", about: "The event will be delivered at the new time.", done: "is moved", method: "PATCH", path: "", moves: true, matches: true },
  { name: "Fire now", in: WAITS, act: "Deliver it now", about: "The event will be delivered at once instead of at its due time.", done: "is being delivered", method: "POST", path: "/fire", matches: true },
  { name: "Redrive", in: ["dead"], act: "Deliver it again", about: "The event will be delivered again to its channel. Check first that the cause of its failure is gone.", done: "will be delivered again", method: "POST", path: "/redrive" },
];

export const stateBadge = (event) => badge(event.state, STATES[event.state] ?? "");

const heldText = (held) => held && [badge("held", "warn"), " ", own(held.reason), held.since ? [" since ", moment(held.since)] : "", held.until ? [" until ", moment(held.until)] : "", held.behind ? [" behind ", own(held.behind)] : "", held.detail ? [": ", own(held.detail)] : ""];
const other = (ctx, id, changed) => id && el("button", { type: "button", class: "link", onclick: () => showEvent(ctx, id, changed) }, id);

function about(ctx, event, changed) {
  // The time-line shows everything that has a time of its own.
  return facts([
    ["state", [stateBadge(event), event.held ? [" ", heldText(event.held)] : ""]], ["due", moment(event.due)], ["late", event.late_ms !== undefined && event.late_ms !== null ? span(event.late_ms) : null], ["error", event.error && own(event.error)],
    ["channel", event.channel && own(event.channel)], ["expires", event.expires], ["ordering key", event.ordering_key && own(event.ordering_key)], ["durability", event.durability], ["time-out", event.timeout], ["retry", event.retry && own(policyText(event.retry))], ["target", event.target && own(`${event.target.method} ${event.target.path ?? ""}`)],
    ["fan-out", other(ctx, event.fanout, changed)], ["labels", event.labels && Object.entries(event.labels).map(([name, value]) => el("span", { class: "label" }, own(`${name}=${value}`)))],
  ]);
}

/** Return a link that opens the page with an event, to be shared. */
const linkTo = (ctx, id) => el("p", { class: "about" }, el("a", { href: `?${new URLSearchParams({ ...ctx.query, view: "events", event: id })}` }, "Link to this event"));

/**
 * Open a dialog with everything that is known of an event, and the actions that its state and the key permit. `changed(event)` is called
 * after each of them.
 */
export async function showEvent(ctx, id, changed = () => {}) {
  ctx = ctx.pinned();
  const note = el("p", { class: "note", role: "status" });
  const acts = el("div", { class: "actions" });
  const form = el("div", {});
  const content = el("div", {}, el("p", { class: "note" }, "Loading …"));
  open(own(id), acts, form, note, content);
  byId("details").classList.add("wide");
  const path = `v1/events/${enc(id)}`;
  const shown = () => isShown(content);

  function report(text, kind = "") {
    note.className = `note ${kind}`;
    note.textContent = text;
  }

  async function load() {
    const found = await call("GET", path, { query: ctx.query, whole: true });
    const event = found.data;
    if (!shown()) return;
    form.replaceChildren();
    const read = () => reads(ctx, "events", id);
    if (event.events) {
      // A fan-out has no state and no actions of its own.
      content.replaceChildren(table("Events", ["channel", "state", "due", "event"],
        event.events.map((each) => [own(each.channel ?? "–"), stateBadge(each), moment(each.due), other(ctx, each.id, changed)])), copyAs({ "Read it": read }).root);
      return;
    }
    const mine = ctx.may("events") ? ACTIONS.filter((each) => each.in.includes(event.state)) : [];
    acts.replaceChildren(...mine.map((each) => el("button", { type: "button", "data-keep": each.name, onclick: () => (each.name === "Edit" ? edit(found) : ask(each, found)) }, each.name)));
    const payload = member(found.text, "payload");
    content.replaceChildren(about(ctx, event, changed), timeline(ctx, event, (each) => other(ctx, each, changed)),
      payloadHead(event.content_type), el("pre", { tabIndex: 0, role: "region", "aria-label": "Payload" }, payload === undefined ? "–" : pretty(payload)),
      copyAs({ "Read it": read, "A new event like it": event.channel === undefined ? read : () => likeEvent(ctx, event, found.text) }).root, linkTo(ctx, id));
    return event;
  }

  /** Change the event in a form of its own, and come back. */
  function edit(found) {
    const back = () => showEvent(ctx, id, changed);
    editEvent(ctx, found, (event) => {
      tell(`${id} is changed.`);
      changed(event);
    }, back);
  }

  /** Ask before an action, and for the time of a move. `wanted`: the time that was chosen before. */
  function ask(action, { data: event, etag }, wanted = localValue(event.due)) {
    report("");
    const time = action.moves ? field("New due time", { type: "datetime-local", step: 1, required: true, value: wanted }) : null;
    const button = el("button", { type: "submit", class: action.danger ? "danger" : "primary" }, action.act);
    const leave = () => {
      form.replaceChildren();
      [...acts.children].find((each) => each.textContent === action.name)?.focus();
    };
    const made = el("form", { class: "ask" }, el("p", {}, action.about), time?.box, el("p", { class: "actions" }, button, el("button", { type: "button", onclick: leave }, "Back")));
    form.replaceChildren(made);
    (time?.input ?? button).focus();
    made.addEventListener("submit", async (submitted) => {
      submitted.preventDefault();
      if (button.disabled) return;
      button.disabled = true;
      try {
        await call(action.method, `${path}${action.path}`, { query: ctx.query, body: time ? { due: chosenTime(time.input) } : undefined, match: action.matches ? etag : undefined });
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        button.disabled = false;
        if (error.status === 412) return changedMeanwhile(action, event, time?.input.value);
        // Its text is what a screen reader reads next.
        return report(problem(error), "wrong");
      }
      const text = `${id} ${action.done}.`;
      if (shown()) {
        report(text, "done");
        await refresh();
      } else {
        tell(text);
        ctx.acted();
      }
    });
  }

  /** Show what has changed since the event was read, before it is asked again. */
  async function changedMeanwhile(action, before, wanted) {
    let now;
    try {
      now = await call("GET", path, { query: ctx.query, whole: true });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return report(problem(error), "wrong");
    }
    const again = el("button", { type: "button", class: "primary", onclick: () => (shown() && action.in.includes(now.data.state) ? ask(action, now, wanted) : refresh()) }, "Go on with its present state");
    form.replaceChildren(conflictNote(before, now.data, ["held", "late_ms", "late_because"], again));
    again.focus();
  }

  async function refresh() {
    try {
      const event = await load();
      if (event) changed(event);
      if (shown()) (acts.firstElementChild ?? byId("details").querySelector(".close")).focus();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      report(problem(error), "wrong");
    }
  }

  try {
    if (!ID.test(id)) throw new Refused(404, "This is not an event id");
    await load();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    content.replaceChildren();
    report(error.status === 404 ? "There is no event with this id." : problem(error), "wrong");
  }
}
