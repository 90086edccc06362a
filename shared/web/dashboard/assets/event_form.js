// The forms that create an event and change one.

import { Refused, call, enc, newId, present } from "./api.js";
import { bodyOf, copyAs, creates } from "./copy.js";
import { byId, el, isShown, moment, open, own, tell } from "./dom.js";
import { Entry, askOver, channelBody, channelFields, given, pairsOf, payloadField, refusal, suggestions, targetFields, timeOf } from "./form.js";
import { NotJson, member, pretty } from "./json.js";
import { HERE, LONGEST, ahead, changeText, distance, duration, durationMs, isZone, offsetText, textIn, timeIn, valueIn, zones } from "./times.js";

const DAY = 86_400_000;
/** Members of an event that its owner does not set: a change of them is no conflict of contents. */
const UNSET = ["attempts", "held", "late_ms", "late_because"];
/** Methods whose requests may have no body. */
const BODILESS = ["GET", "DELETE"];
/** States in which an event has ended without a delivery. */
const ENDED = ["dead", "cancelled", "lapsed"];
const EMPTY = '{\n  "hello": "world"\n}';

/** Add the fields of a due time to a form: a delay, or a time in a named zone. `at`: the time so far, as the API has it. */
function whenFields(entry, at) {
  const when = entry.field("", "When", {}, "select", el("option", { value: "delay", selected: !at }, "after a delay"), el("option", { value: "at", selected: Boolean(at) }, "at a time"));
  const kind = when.input;
  const delay = entry.field("/delay", "Delay", { value: "30s", hint: "Such as 30s, 1h 30m, 7d or PT30S." });
  const local = entry.field("/due", "Due at", { type: "datetime-local", step: 1 });
  const zone = entry.field("", "Time zone", { value: HERE });
  const list = suggestions(zones());
  zone.input.setAttribute("list", list.id);
  const said = el("p", { class: "about", role: "status" });
  const here = () => (isZone(zone.input.value.trim()) ? zone.input.value.trim() : HERE);
  if (at) local.input.value = valueIn(Date.parse(at), HERE);
  // As the browser writes it, which leaves out seconds that are 0.
  const original = at ? { text: at, value: local.input.value } : null;
  const set = (ms) => {
    kind.value = "at";
    local.input.value = valueIn(ms, here());
    local.input.dispatchEvent(new Event("input", { bubbles: true }));
    show();
  };
  /** Return 09:00 of the day some days after today in the zone. */
  const nine = (days) => timeIn(`${valueIn(present() + days * DAY, here()).slice(0, 10)}T09:00`, here()).at;
  const monday = () => 8 - (new Date(`${valueIn(present(), here()).slice(0, 10)}T00:00Z`).getUTCDay() || 7);
  const quick = el("p", { class: "actions quick" }, [["In 5 minutes", () => Math.ceil((present() + 300_000) / 1000) * 1000], ["Tomorrow 09:00", () => nine(1)], ["Next Monday 09:00", () => nine(monday())]]
    .map(([name, when]) => el("button", { type: "button", onclick: () => set(when()) }, name)));

  const found = () => (kind.value === "at" && local.input.validity.valid && local.input.value && isZone(zone.input.value.trim()) ? timeIn(local.input.value, zone.input.value.trim()) : null);
  function show() {
    const by = kind.value === "delay";
    delay.box.hidden = !by;
    local.box.hidden = zone.box.hidden = by;
    const ms = by ? durationMs(duration(delay.input.value)) : null;
    if (by) said.textContent = ms === null ? "" : ms >= LONGEST ? "That is too far ahead." : `Due ${ms ? distance(present() + ms) : "at once"}: ${textIn(present() + ms, HERE)} (${HERE}) if it is sent now.`;
    else if (!isZone(zone.input.value.trim())) said.textContent = "This browser does not know the time zone. Choose one such as Europe/Berlin.";
    else {
      const time = found();
      const name = here();
      said.textContent = time ? [`${textIn(time.at, name)} (${name}, ${offsetText(ahead(time.at, name))}), ${distance(time.at)}.`, time.at < present() ? "The time is past: it is delivered at once." : "",
        changeText(time.change, local.input.value.slice(11, 16), textIn(time.at, name).slice(15, 20))].filter(Boolean).join(" ") : "Choose a day and a time.";
    }
  }
  // A time that a person has chosen is a time on the clock of the zone; another zone means another instant.
  for (const each of [kind, delay.input, local.input, zone.input]) each.addEventListener("input", show);
  kind.addEventListener("change", show);
  show();
  return {
    box: el("fieldset", { class: "when" }, el("legend", {}, "Due"), el("div", { class: "pair" }, when.box, delay.box, local.box, zone.box), list, quick, said),
    /** Return the members of a body. Throws `Refused` if the time cannot be read. */
    body() {
      if (kind.value === "delay") return { delay: duration(delay.input.value) };
      if (original && local.input.value === original.value && zone.input.value.trim() === HERE) return { due: original.text };
      if (!isZone(zone.input.value.trim())) throw refusal("/due", "the time zone is unknown");
      return { due: new Date(timeOf(local, "/due", zone.input.value.trim()).at).toISOString() };
    },
  };
}

const length = (field) => {
  const text = Entry.text(field);
  return text && duration(text);
};

const choice = (value, ...names) => names.map((each) => el("option", { value: each, selected: each === (value ?? "") }, each || "the tenant's"));

/** Return a request for `copyAs`: `{missing}` while the form cannot be read. */
const ready = (make) => () => {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof NotJson) && error.status !== 422) throw error;
    return { missing: error.detail ?? error.message };
  }
};

/** Add the fields of a retry policy to a form. */
function retryFields(entry) {
  const pauses = entry.field("/retry/schedule /retry", "Pauses between attempts", { placeholder: "5s, 5m, 30m", hint: "With commas between them. There is one attempt more than pauses; the next three fields stay empty." });
  const attempts = entry.field("/retry/attempts", "Attempts", { placeholder: "8", inputMode: "numeric", hint: "In all, the first included." });
  const first = entry.field("/retry/first", "First pause", { placeholder: "5s", hint: "It doubles with each attempt." });
  const max = entry.field("/retry/max", "Longest pause", { placeholder: "1h" });
  const within = entry.field("/retry/within", "Retry within", { placeholder: "4d", hint: "No attempt later than this after it is due." });
  return {
    boxes: [pauses.box, attempts.box, first.box, max.box, within.box],
    /** Return the retry policy; undefined while all fields are empty. Throws `Refused`. */
    body() {
      const wanted = Entry.text(attempts);
      if (wanted && !/^\d{1,9}$/.test(wanted)) throw refusal("/retry/attempts", `${wanted} is not a number of attempts, such as 8`);
      const listed = pauses.input.value.split(",").map((each) => each.trim()).filter(Boolean).map(duration);
      const found = given({ schedule: listed.length ? listed : undefined, attempts: wanted && Number(wanted), first: length(first), max: length(max), within: length(within) });
      return Object.keys(found).length ? found : undefined;
    },
  };
}

/** Open the form of a new event. `changed()` is called once it is stored; `show(id)` opens an event. */
export function newEvent(ctx, changed, show) {
  ctx = ctx.pinned();
  const entry = new Entry("Create the event", send);
  const id = entry.field("/id", "Id (optional)", { maxLength: 200, hint: "Your own name for it, such as order-17: the same id and content again is the same event." });
  const when = whenFields(entry);
  const channels = channelFields(entry, ctx, { channel: "default" }, true);
  const payload = payloadField(entry, EMPTY, undefined, () => BODILESS.includes(target.method.input.value));
  const expires = entry.field("/expires", "Expires", { placeholder: "1h", hint: "It lapses if it is not delivered within this time after it is due." });
  const labels = entry.field("/labels", "Labels", { rows: 2, placeholder: "team=blue", hint: "One NAME=VALUE in a line." }, "textarea");
  const key = entry.field("/ordering_key", "Ordering key", { hint: "Events with the same key share the channel's limits per key, such as their order." });
  const flex = entry.field("/flex", "Flexible window", { placeholder: "5m", hint: "Deliver at any time within this window after it is due." });
  const collapse = entry.field("/collapse", "Collapse", { placeholder: "1h", hint: "Replace the waiting event of this id. It is delivered after this time at the latest." });
  const durability = entry.field("/durability", "Durability", {}, "select", choice("", "", "fast", "standard", "mirrored"));
  const target = targetFields(entry);
  const retry = retryFields(entry);
  target.method.input.addEventListener("change", () => {
    const bodiless = BODILESS.includes(target.method.input.value);
    if (payload.input.value !== (bodiless ? EMPTY : "")) return;
    payload.input.value = bodiless ? "" : EMPTY;
    payload.input.dispatchEvent(new Event("input"));
  });

  function body() {
    if (id.input.value && !Entry.text(id)) throw refusal("/id", "an id has no spaces; leave the field empty to get one from the service");
    const fields = given({
      id: Entry.text(id), ...when.body(), ...channelBody(Entry.text(channels.channel)), expires: length(expires), flex: length(flex), durability: durability.input.value, labels: pairsOf(labels, "/labels"),
      ordering_key: Entry.text(key), collapse: length(collapse), retry: retry.body(), target: target.body(), on_delivered: Entry.text(channels.delivered), on_dead: Entry.text(channels.dead),
    });
    return { fields, payload: payload.text() };
  }
  const copied = copyAs({ "This event": ready(() => creates(ctx, body())) });
  entry.changed = copied.update;
  entry.root.append(when.box, el("div", { class: "pair" }, channels.channel.box, id.box), channels.list, payload.box,
    el("details", { class: "more" }, el("summary", {}, "More: labels, ordering key, expiry, callbacks, target, retries"),
      el("div", { class: "pair" }, labels.box, key.box, expires.box, flex.box, collapse.box, durability.box, channels.delivered.box, channels.dead.box),
      el("fieldset", {}, el("legend", {}, "Target, for http channels"), el("div", { class: "pair" }, target.boxes)),
      el("fieldset", {}, el("legend", {}, "Retries: instead of the tenant's"), el("div", { class: "pair" }, retry.boxes))),
    copied.root, entry.note, entry.buttons);
  open("New event", entry.root);
  byId("details").classList.add("wide");
  channels.channel.input.focus();

  let tried = {};
  /** Return the body with an id: the same content again, after an answer that was lost, is then the same event. */
  function identified(made) {
    if (made.fields.id || made.fields.durability === "fast") return made;
    const text = bodyOf(made);
    if (text !== tried.text) tried = { text, id: `~${newId()}${newId()}` };
    return { ...made, fields: { id: tried.id, ...made.fields } };
  }

  async function send() {
    const { data, status } = await call("POST", "v1/events", { query: ctx.query, raw: bodyOf(identified(body())), whole: true });
    changed();
    if (!isShown(entry.root)) return tell(`${data.id} is stored.`);
    const first = data.events?.[0] ?? data;
    const ended = status === 200 && (data.events ?? [data]).find((each) => ENDED.includes(each.state));
    const what = ended ? `exists and is ${ended.state}: nothing is scheduled` : status === 200 ? "was stored before with this content: nothing is changed" : status === 202 ? "is accepted, and waits to be stored" : data.events ? `is stored as ${data.events.length} events` : `is ${first.state}`;
    const link = el("button", { type: "button", class: "primary", onclick: () => show(data.id) }, "Open the event");
    const again = el("button", { type: "button", onclick: () => newEvent(ctx, changed, show) }, "Create another");
    entry.root.replaceChildren(el("p", { class: ended ? "note wrong" : "note done", role: "status" }, own(data.id), ` ${what}${ended ? ". It was due " : ", due "}`, moment(first.due), ` (${distance(Date.parse(first.due))}).`), el("p", { class: "actions" }, link, again));
    link.focus();
  }
}

/**
 * Open the form that changes an event. `found`: the event as it was read, with its text and entity tag. `done(event)` is called after the change,
 * `again()` opens the event.
 */
export function editEvent(ctx, found, done, again) {
  const event = found.data;
  let tag = found.etag;
  const raw = member(found.text, "payload");
  const written = raw === undefined ? "" : pretty(raw);
  const entry = new Entry("Save the changes", send);
  const when = whenFields(entry, event.due);
  const channels = channelFields(entry, ctx, event, false);
  const payload = payloadField(entry, written, raw, () => raw === undefined, event.content_type);
  const expires = entry.field("/expires", "Expires", { value: event.expires ?? "", placeholder: "1h", hint: "Empty: never." });
  const target = targetFields(entry, event.target);
  const aimed = JSON.stringify(target.body());

  /** Return the members that differ from the event. Null removes one. */
  function changes() {
    const fields = {};
    const due = when.body();
    if (due.delay || due.due !== event.due) Object.assign(fields, due);
    const texts = { channel: channels.channel, expires, on_delivered: channels.delivered, on_dead: channels.dead };
    for (const [name, field] of Object.entries(texts)) {
      const value = name === "expires" ? length(field) : Entry.text(field);
      if (value !== (event[name] ?? undefined)) fields[name] = value ?? null;
    }
    if (fields.channel === null) throw refusal("/channel", "a channel is missing");
    if (JSON.stringify(target.body()) !== aimed) fields.target = target.body() ?? null;
    return { fields, payload: payload.text() === raw ? undefined : payload.text() };
  }

  const held = el("div", {});
  entry.root.append(when.box, el("div", { class: "pair" }, channels.channel.box, expires.box), channels.list, payload.box,
    el("details", { class: "more" }, el("summary", {}, "More: callbacks, target"), el("div", { class: "pair" }, channels.delivered.box, channels.dead.box, target.boxes)), held, entry.note, entry.buttons);
  entry.buttons.append(el("button", { type: "button", onclick: again }, "Back"));
  open([`Edit `, own(event.id)], entry.root);
  byId("details").classList.add("wide");
  payload.input.focus();

  async function send() {
    const body = changes();
    if (!Object.keys(body.fields).length && body.payload === undefined) return entry.refuse(new Refused(0, "You have changed nothing", ""));
    held.replaceChildren();
    let changed;
    try {
      changed = await call("PATCH", `v1/events/${enc(event.id)}`, { query: ctx.query, raw: bodyOf(body), match: tag });
    } catch (error) {
      if (error.status !== 412) throw error;
      return conflict();
    }
    done(changed);
    if (isShown(entry.root)) again();
  }

  /** Show what has changed since the event was read: load it, or save over it. */
  async function conflict() {
    const now = await call("GET", `v1/events/${enc(event.id)}`, { query: ctx.query, whole: true });
    askOver(entry, held, { before: event, now, ignored: UNSET, mine: "changes", load: () => editEvent(ctx, now, done, again), save: (etag) => (tag = etag) });
  }
}

/** Return the request that creates an event like this one, without its id. What is past is due at once. */
export function likeEvent(ctx, event, text) {
  const names = ["channel", "expires", "flex", "durability", "retry", "timeout", "content_type", "labels", "ordering_key", "target", "on_delivered", "on_dead"];
  const when = Date.parse(event.due) > present() ? { due: event.due } : { delay: "PT0S" };
  return creates(ctx, { fields: { ...when, ...given(Object.fromEntries(names.map((name) => [name, event[name]]))) }, payload: member(text, "payload") });
}
