// One event in a dialog: its state, why it was late, its attempts with the receivers' answers, and what may be done with it.

import { Refused, call, enc } from "./api.js";
import { badge, byId, chosenTime, el, facts, field, localValue, moment, open, own, plural, problem, span, table, tell } from "./dom.js";

export const STATES = { queued: "planned", scheduled: "planned", firing: "warn", working: "warn", retrying: "warn", delivered: "good", dead: "bad", cancelled: "", lapsed: "bad" };
const WAITS = ["scheduled", "retrying"];

/** What may be done with an event in some states. `send(ctx, id, time)` makes the call; `done`: the text afterwards. */
const ACTIONS = [
  { name: "Cancel", in: ["queued", ...WAITS], act: "Cancel the event", about: "The event will not be delivered. This cannot be undone.", danger: true, done: "is cancelled", method: "DELETE", path: "" },
  { name: "Move", in: WAITS, act: "Move the event", about: "The event will be delivered at the new time.", done: "is moved", method: "PATCH", path: "", moves: true },
  { name: "Fire now", in: WAITS, act: "Deliver it now", about: "The event will be delivered at once instead of at its due time.", done: "is being delivered", method: "POST", path: "/fire" },
  { name: "Redrive", in: ["dead"], act: "Deliver it again", about: "The event will be delivered again to its channel. Check first that the cause of its failure is gone.", done: "will be delivered again", method: "POST", path: "/redrive" },
];

export const stateBadge = (event) => badge(event.state, STATES[event.state] ?? "");

/** Return the receiver's answer to an attempt, closed at first; its head and body are texts. */
function answer(attempt) {
  const found = attempt.answer;
  if (!found) return "–";
  const text = found.body ?? "";
  return el("details", {},
    el("summary", {}, [found.content_type ? own(found.content_type) : "", text ? ` ${plural(text.length, "character")}` : " no body", found.truncated ? ", cut" : ""]),
    found.headers ? facts(Object.entries(found.headers).map(([name, value]) => [own(name), own(String(value))])) : null,
    text ? el("pre", { tabIndex: 0, "aria-label": "Body of the answer", role: "region" }, text) : null);
}

function attemptsOf(event) {
  const attempts = event.attempts ?? [];
  if (!attempts.length) return el("p", { class: "dim" }, "There was no attempt yet.");
  return table("Attempts", ["at", "outcome", "status", "error", "took", "answer"],
    attempts.map((each) => [moment(each.at), each.outcome, each.status ? String(each.status) : "–", own(each.error ?? ""), span(each.took_ms), answer(each)]));
}

/** Return the reasons of an event's lateness, the longest first. */
function reasons(event) {
  if (!event.late_because?.length) return null;
  return [el("h3", {}, "Why it is late"), el("ul", { class: "reasons" }, event.late_because.map((each) => el("li", {}, own(each.text))))];
}

const heldText = (held) => held && [badge("held", "warn"), " ", own(held.reason), held.since ? [" since ", moment(held.since)] : "", held.until ? [" until ", moment(held.until)] : "", held.behind ? [" behind ", own(held.behind)] : "", held.detail ? [": ", own(held.detail)] : ""];
const other = (ctx, id, changed) => id && el("button", { type: "button", class: "link", onclick: () => showEvent(ctx, id, changed) }, id);

function about(ctx, event, changed) {
  return facts([
    ["state", [stateBadge(event), event.held ? [" ", heldText(event.held)] : ""]], ["due", moment(event.due)], ["planned", event.planned && moment(event.planned)], ["created", moment(event.created)],
    ["expires", event.expires], ["channel", event.channel && own(event.channel)], ["delivered", event.delivered_at && moment(event.delivered_at)], ["late", event.late_ms !== undefined && event.late_ms !== null ? span(event.late_ms) : null],
    ["next attempt", event.next_attempt && moment(event.next_attempt)], ["works until", event.work && moment(event.work.deadline)], ["error", event.error && own(event.error)],
    ["ordering key", event.ordering_key && own(event.ordering_key)], ["durability", event.durability], ["callback", other(ctx, event.callback, changed)], ["callback of", other(ctx, event.callback_of, changed)], ["fan-out", other(ctx, event.fanout, changed)],
    ["labels", event.labels && Object.entries(event.labels).map(([name, value]) => el("span", { class: "label" }, own(`${name}=${value}`)))],
  ]);
}

/**
 * Open a dialog with everything that is known of an event, and the actions that its state and the key permit. `changed(event)` is called
 * after each of them.
 */
export async function showEvent(ctx, id, changed = () => {}) {
  const note = el("p", { class: "note", role: "status" });
  const acts = el("div", { class: "actions" });
  const form = el("div", {});
  const content = el("div", {}, el("p", { class: "note" }, "Loading …"));
  open(own(id), acts, form, note, content);
  byId("details").classList.add("wide");
  const path = `v1/events/${enc(id)}`;
  const shown = () => content.isConnected;

  function report(text, kind = "") {
    note.className = `note ${kind}`;
    note.textContent = text;
  }

  async function load() {
    const event = await call("GET", path, { query: ctx.query });
    if (!shown()) return;
    form.replaceChildren();
    if (event.events) {
      // A fan-out has no state and no actions of its own.
      content.replaceChildren(table("Events", ["channel", "state", "due", "event"],
        event.events.map((each) => [own(each.channel ?? "–"), stateBadge(each), moment(each.due), other(ctx, each.id, changed)])));
      return;
    }
    const mine = ctx.may("events") ? ACTIONS.filter((each) => each.in.includes(event.state)) : [];
    acts.replaceChildren(...mine.map((each) => el("button", { type: "button", "data-keep": each.name, onclick: () => ask(each, event) }, each.name)));
    content.replaceChildren(...[about(ctx, event, changed), reasons(event), el("h3", {}, "Attempts"), attemptsOf(event),
      el("h3", {}, "Payload"), el("pre", { tabIndex: 0, role: "region", "aria-label": "Payload" }, JSON.stringify(event.payload, null, 2) ?? "–")].flat().filter(Boolean));
    return event;
  }

  /** Ask before an action, and for the time of a move. */
  function ask(action, event) {
    report("");
    const time = action.moves ? field("New due time", { type: "datetime-local", step: 1, required: true, value: localValue(event.due) }) : null;
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
        await call(action.method, `${path}${action.path}`, { query: ctx.query, body: time ? { due: chosenTime(time.input) } : undefined });
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        button.disabled = false;
        // Its text is what a screen reader reads next.
        return report(problem(error), "wrong");
      }
      const text = `${id} ${action.done}.`;
      if (shown()) {
        report(text, "done");
        await refresh();
      } else tell(text);
    });
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
    await load();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    content.replaceChildren();
    report(error.status === 404 ? "There is no event with this id." : problem(error), "wrong");
  }
}
