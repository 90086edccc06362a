// The forms that create an event and change one.

import { Refused, call, enc, present } from "./api.js";
import { bodyOf, copyAs, creates } from "./copy.js";
import { byId, el, moment, open, own, tell } from "./dom.js";
import { Entry, channelBody, channelFields, conflictNote, given, payloadField, refusal, suggestions } from "./form.js";
import { NotJson, member, pretty } from "./json.js";
import { HERE, ahead, changeText, distance, duration, durationMs, isZone, offsetText, textIn, timeIn, valueIn, zones } from "./times.js";

const DAY = 86_400_000;
/** Members of an event that its owner does not set: a change of them is no conflict of contents. */
const UNSET = ["attempts", "held", "late_ms", "late_because"];
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

  const found = () => (kind.value === "at" && local.input.value && isZone(zone.input.value.trim()) ? timeIn(local.input.value, zone.input.value.trim()) : null);
  function show() {
    const by = kind.value === "delay";
    delay.box.hidden = !by;
    local.box.hidden = zone.box.hidden = by;
    const ms = by ? durationMs(duration(delay.input.value)) : null;
    if (by) said.textContent = ms === null ? "" : `Due ${ms ? distance(present() + ms) : "at once"}: ${textIn(present() + ms, HERE)} (${HERE}) if it is sent now.`;
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
      const time = found();
      if (!time) throw refusal("/due", isZone(zone.input.value.trim()) ? "a day and a time are missing" : "the time zone is unknown");
      return { due: new Date(time.at).toISOString() };
    },
  };
}

/** Return labels of lines such as team=blue. Throws `Refused`. */
function labelsOf(text) {
  const lines = text.split("\n").map((each) => each.trim()).filter(Boolean);
  for (const each of lines) if (each.indexOf("=") < 1) throw refusal("/labels", `${each} is not NAME=VALUE`);
  return lines.length ? Object.fromEntries(lines.map((each) => [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)])) : undefined;
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

/** Open the form of a new event. `changed()` is called once it is stored; `show(id)` opens an event. */
export function newEvent(ctx, changed, show) {
  const entry = new Entry("Create the event", send);
  const id = entry.field("/id", "Id (optional)", { maxLength: 200, hint: "Your own name for it, such as order-17: the same id and content again is the same event." });
  const when = whenFields(entry);
  const channels = channelFields(entry, ctx, { channel: "default" }, true);
  const payload = payloadField(entry, EMPTY);
  const expires = entry.field("/expires", "Expires", { placeholder: "1h", hint: "It lapses if it is not delivered within this time after it is due." });
  const labels = entry.field("/labels", "Labels", { rows: 2, placeholder: "team=blue", hint: "One NAME=VALUE in a line." }, "textarea");
  const key = entry.field("/ordering_key", "Ordering key", { hint: "Events with the same key share the channel's limits per key, such as their order." });
  const flex = entry.field("/flex", "Flexible window", { placeholder: "5m", hint: "Deliver at any time within this window after it is due." });
  const collapse = entry.field("/collapse", "Collapse", { placeholder: "1h", hint: "Replace the waiting event of this id. It is delivered after this time at the latest." });
  const durability = entry.field("/durability", "Durability", {}, "select", choice("", "", "fast", "standard", "mirrored"));
  const path = entry.field("/target/path /target", "Path", { placeholder: "/orders/17", hint: "Added to the path of the http channel's URL." });
  const method = entry.field("/target/method", "Method", {}, "select", [["", "POST"], ["PUT", "PUT"], ["PATCH", "PATCH"]].map(([value, name]) => el("option", { value }, name)));

  function body() {
    const target = given({ path: Entry.text(path), method: method.input.value });
    const fields = given({
      id: Entry.text(id), ...when.body(), ...channelBody(Entry.text(channels.channel)), expires: length(expires), flex: length(flex), durability: durability.input.value, labels: labelsOf(labels.input.value),
      ordering_key: Entry.text(key), collapse: length(collapse), target: Object.keys(target).length ? target : undefined, on_delivered: Entry.text(channels.delivered), on_dead: Entry.text(channels.dead),
    });
    return { fields, payload: payload.text() };
  }
  const copied = copyAs({ "This event": ready(() => creates(ctx, body())) });
  entry.changed = copied.update;
  entry.root.append(when.box, el("div", { class: "pair" }, channels.channel.box, id.box), channels.list, payload.box,
    el("details", { class: "more" }, el("summary", {}, "More: labels, ordering key, expiry, callbacks, target"),
      el("div", { class: "pair" }, labels.box, key.box, expires.box, flex.box, collapse.box, durability.box, channels.delivered.box, channels.dead.box, path.box, method.box)),
    copied.root, entry.note, entry.buttons);
  open("New event", entry.root);
  byId("details").classList.add("wide");
  channels.channel.input.focus();

  let tried = {};
  /** Return the body with an id: the same content again, after an answer that was lost, is then the same event. */
  function identified(made) {
    if (made.fields.id || made.fields.durability === "fast") return made;
    const text = bodyOf(made);
    if (text !== tried.text) tried = { text, id: `~${[...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("")}` };
    return { ...made, fields: { id: tried.id, ...made.fields } };
  }

  async function send() {
    const { data, status } = await call("POST", "v1/events", { query: ctx.query, raw: bodyOf(identified(body())), whole: true });
    changed();
    if (!entry.root.isConnected) return tell(`${data.id} is stored.`);
    const first = data.events?.[0] ?? data;
    const what = status === 200 ? "was stored before with this content: nothing is changed" : status === 202 ? "is accepted, and waits to be stored" : data.events ? `is stored as ${data.events.length} events` : `is ${first.state}`;
    const link = el("button", { type: "button", class: "primary", onclick: () => show(data.id) }, "Open the event");
    const again = el("button", { type: "button", onclick: () => newEvent(ctx, changed, show) }, "Create another");
    entry.root.replaceChildren(el("p", { class: "note done", role: "status" }, own(data.id), ` ${what}, due `, moment(first.due), ` (${distance(Date.parse(first.due))}).`), el("p", { class: "actions" }, link, again));
    link.focus();
  }
}

/**
 * Open the form that changes an event. `found`: the event as it was read, with its text and entity tag. `done(text)` is called after the change,
 * `again()` opens the event.
 */
export function editEvent(ctx, found, done, again) {
  const event = found.data;
  let tag = found.etag;
  const raw = member(found.text, "payload");
  const written = pretty(raw);
  const entry = new Entry("Save the changes", send);
  const when = whenFields(entry, event.due);
  const channels = channelFields(entry, ctx, event, false);
  const payload = payloadField(entry, written, raw);
  const expires = entry.field("/expires", "Expires", { value: event.expires ?? "", placeholder: "1h", hint: "Empty: never." });
  const path = entry.field("/target/path /target", "Path", { value: event.target?.path ?? "", placeholder: "/orders/17", hint: event.target?.query || event.target?.headers ? "The target has a query or headers, which stay." : "Added to the path of the http channel's URL." });

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
    const aimed = given({ ...event.target, path: Entry.text(path) });
    if ((Entry.text(path) ?? "") !== (event.target?.path ?? "")) fields.target = Object.keys(aimed).some((each) => each !== "method") || aimed.method !== "POST" ? aimed : null;
    return { fields, payload: payload.text() === raw ? undefined : payload.text() };
  }

  const held = el("div", {});
  entry.root.append(when.box, el("div", { class: "pair" }, channels.channel.box, expires.box), channels.list, payload.box,
    el("details", { class: "more" }, el("summary", {}, "More: callbacks, target"), el("div", { class: "pair" }, channels.delivered.box, channels.dead.box, path.box)), held, entry.note, entry.buttons);
  entry.buttons.append(el("button", { type: "button", onclick: again }, "Back"));
  open([`Edit `, own(event.id)], entry.root);
  byId("details").classList.add("wide");
  payload.input.focus();

  async function send() {
    const body = changes();
    if (!Object.keys(body.fields).length && body.payload === undefined) return entry.refuse(new Refused(0, "You have changed nothing", ""));
    held.replaceChildren();
    try {
      await call("PATCH", `v1/events/${enc(event.id)}`, { query: ctx.query, raw: bodyOf(body), match: tag });
    } catch (error) {
      if (error.status !== 412) throw error;
      return conflict();
    }
    done(`${event.id} is changed.`);
  }

  /** Show what has changed since the event was read: load it, or save over it. */
  async function conflict() {
    const now = await call("GET", `v1/events/${enc(event.id)}`, { query: ctx.query, whole: true });
    const over = el("button", { type: "button", onclick: () => {
      tag = now.etag;
      held.replaceChildren();
      entry.root.requestSubmit();
    } }, "Save my changes over it");
    const note = conflictNote(event, now.data, UNSET, el("button", { type: "button", class: "primary", onclick: () => editEvent(ctx, now, done, again) }, "Load it"), over);
    held.replaceChildren(note);
    note.focus();
  }
}

/** Return the request that creates an event like this one, without its id. What is past is due at once. */
export function likeEvent(ctx, event, text) {
  const names = ["channel", "expires", "flex", "durability", "retry", "labels", "ordering_key", "target", "on_delivered", "on_dead"];
  const when = Date.parse(event.due) > present() ? { due: event.due } : { delay: "PT0S" };
  return creates(ctx, { fields: { ...when, ...given(Object.fromEntries(names.map((name) => [name, event[name]]))) }, payload: member(text, "payload") ?? "null" });
}
