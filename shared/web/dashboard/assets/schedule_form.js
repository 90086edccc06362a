// The form that creates a schedule or changes its content, with the next occurrences while it is written.

import { Refused, call, enc } from "./api.js";
import { bodyOf, copyAs, puts } from "./copy.js";
import { byId, el, isShown, open, own, table, tell } from "./dom.js";
import { Entry, askOver, channelBody, channelFields, given, payloadField, refusal, sentenceOf, suggestions, timeOf } from "./form.js";
import { NotJson, member, pretty } from "./json.js";
import { HERE, changeText, distance, duration, isZone, offsetText, textIn, valueIn, zones } from "./times.js";

const COMING = 10; // occurrences of the preview
const NEAR = 40 * 86_400_000; // ms between two occurrences, with one change of the clock at most
const PAUSE = 350; // ms without typing before the preview is loaded
/** Members that change while a schedule runs: they are no part of its content. */
const RUNNING = ["next", "last", "missed", "skipped", "revision", "reads_as"];
const ID = /^[A-Za-z0-9_:@~-]+$/;
const EMPTY = '{\n  "job": "report"\n}';
const CRONS = [["Every hour", "0 * * * *"], ["Every day 09:00", "0 9 * * *"], ["Workdays 09:00", "0 9 * * MON-FRI"], ["First of the month", "0 6 1 * *"], ["Last workday", "0 18 LW * *"]];

const words = (text) => text.split(/[\s,]+/).filter(Boolean);
const text = (field) => Entry.text(field);

/** Return the difference from UTC of a local time of the API, in ms. */
function offsetOf(local) {
  const [, sign, hours, minutes] = /([+-])(\d\d):(\d\d)$/.exec(local) ?? [null, "+", "0", "0"];
  return (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000;
}

/** Return what a person should know about an occurrence: a time that does not exist or exists twice, and a change of the clock since the one before. */
function noteOn(each, before, cron) {
  const clock = each.local?.slice(11, 16);
  const [minute, hour] = cron?.trim().split(/\s+/).slice(-5) ?? []; // six fields begin with the second
  const wanted = /^\d+$/.test(minute) && /^\d+$/.test(hour) ? `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}` : "its time";
  if (each.reason) return changeText(each.reason, each.reason === "gap" ? wanted : clock, clock);
  // Between distant ones there may be several changes, and the difference says nothing.
  const near = before?.local && each.local && Date.parse(each.at) - Date.parse(before.at) < NEAR;
  const [was, is] = near ? [offsetOf(before.local), offsetOf(each.local)] : [0, 0];
  return was !== is ? `The clocks went ${is > was ? "forward" : "back"} since the one before: ${offsetText(is)} instead of ${offsetText(was)}.` : "";
}

/** Return the occurrences of a preview as a table. `cron`: the expression, to name a local time that does not exist. */
export function occurrencesTable(items, cron) {
  if (!items.length) return el("p", {}, "The schedule has no further occurrence.");
  const zoned = Boolean(items[0].local);
  const here = (each) => textIn(Date.parse(each.at), HERE);
  const there = (each) => textIn(Date.parse(`${each.local.slice(0, 19)}Z`), "UTC");
  // A device in the same zone needs no second column.
  const both = zoned && items.some((each) => here(each) !== there(each));
  const time = (each) => el("time", { dateTime: each.at }, zoned ? `${there(each)} ${offsetText(offsetOf(each.local))}` : here(each));
  return table("Next occurrences", [zoned ? "in its time zone" : `here (${HERE})`, ...(both ? [`here (${HERE})`] : []), "distance", "note"],
    items.map((each, at) => [time(each), ...(both ? [el("time", { dateTime: each.at }, here(each))] : []), el("span", { class: "age" }, distance(Date.parse(each.at))), noteOn(each, items[at - 1], cron)]));
}

/** A part with the next occurrences of the rule that `rule()` returns; it is loaded anew when the rule has changed. `refuse(error)` shows what is wrong with the rule. */
function livePreview(ctx, rule, refuse) {
  const place = el("div", { class: "occurrences" });
  const said = el("p", { class: "about", role: "status" }, "");
  let [shown, timer, going] = [null, null, null];
  async function load(sent, cron) {
    going?.abort();
    const mine = (going = new AbortController());
    try {
      const { items, reads_as: words } = await call("POST", "v1/schedules/preview", { query: { ...ctx.query, n: COMING }, raw: sent, signal: mine.signal });
      if (mine.signal.aborted) return;
      refuse(null);
      place.replaceChildren(occurrencesTable(items, cron));
      said.textContent = (words ? `Read as: ${words}. ` : "") + (items.length ? `The first ${items.length === 1 ? "occurrence is" : `${items.length} occurrences are`} shown, as of now.` : "");
    } catch (error) {
      if (mine.signal.aborted) return;
      if (!(error instanceof Refused)) throw error;
      place.replaceChildren();
      said.textContent = error.status === 422 ? "There is no preview: something in the rule is not accepted yet." : `There is no preview: ${error.message}.`;
      refuse(error);
    }
  }
  function update(now = false) {
    let made = null;
    try {
      made = rule();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refuse(error);
    }
    const sent = made && JSON.stringify(made);
    if (sent === shown) return;
    shown = sent;
    clearTimeout(timer);
    going?.abort();
    if (!sent) {
      place.replaceChildren();
      said.textContent = "The next occurrences are shown here once there is a rule.";
      return;
    }
    timer = setTimeout(() => place.isConnected && load(sent, made.cron), now ? 0 : PAUSE);
  }
  return { box: el("section", { class: "preview", "aria-label": "Preview" }, el("h3", {}, `Next ${COMING} occurrences`), said, place), update };
}

/** A field of a time on the clock of a zone, which keeps the time that it was given. */
function timeField(entry, name, label, at, zone) {
  const field = entry.field(`/${name}`, label, { type: "datetime-local", step: 1, value: at ? valueIn(Date.parse(at), zone()) : "" });
  const [value, first] = [field.input.value, zone()];
  return {
    ...field,
    text() {
      if (!field.input.value && !field.input.validity.badInput) return undefined;
      return at && field.input.value === value && zone() === first ? at : new Date(timeOf(field, `/${name}`, zone()).at).toISOString();
    },
  };
}

/**
 * Open the form of a schedule. `found`: the schedule as it was read, with its text and entity tag; null for a new one. `done(schedule)` is
 * called once it is stored; `show(schedule)` opens a schedule: then, if the form is still open, and by the button Back.
 */
export function scheduleForm(ctx, found, done, show) {
  ctx = ctx.pinned();
  const old = found?.data ?? null;
  const raw = found ? member(found.text, "payload") : undefined;
  let tag = found?.etag;
  const entry = new Entry(old ? "Save the schedule" : "Create the schedule", send);
  const id = entry.field("{id} /id", "Id", { maxLength: 160, value: old?.id ?? "", disabled: Boolean(old), hint: old ? "" : "A name such as nightly." });
  const kind = entry.field("", "Rule", {}, "select", el("option", { value: "cron", selected: !old?.every }, "cron expression"), el("option", { value: "every", selected: Boolean(old?.every) }, "fixed interval"));
  const cron = entry.field("/cron", "Cron expression", { value: old?.cron ?? (old ? "" : "0 9 * * MON-FRI"), hint: "Minute, hour, day of month, month, day of week; with six fields, the second first; or @daily. Also L, LW, 15W, FRI#2 and FRIL.", class: "code" });
  const zone = entry.field("/timezone", "Time zone", { value: old?.timezone ?? (old ? "" : HERE), hint: "Empty: UTC." });
  const zoneList = suggestions(zones());
  zone.input.setAttribute("list", zoneList.id);
  const every = entry.field("/every", "Interval", { value: old?.every ?? "15m", hint: "Such as 15m, 1h or P1D, in whole seconds; clock changes have no effect." });
  const quick = el("p", { class: "actions quick" }, CRONS.map(([name, rule]) => el("button", { type: "button", onclick: () => {
    cron.input.value = rule;
    cron.input.dispatchEvent(new Event("input", { bubbles: true }));
  } }, name)));
  const byCron = () => kind.input.value === "cron";
  const clock = () => (byCron() && isZone(text(zone) ?? "UTC") ? text(zone) ?? "UTC" : HERE);
  const channels = channelFields(entry, ctx, old ? { ...old, channel: old.channels?.join(", ") ?? old.channel } : { channel: "default" }, true);
  const payload = payloadField(entry, raw === undefined ? EMPTY : pretty(raw), raw, () => false, old?.content_type);
  const start = timeField(entry, "start", "Start", old?.start, clock);
  const end = timeField(entry, "end", "End", old?.end, clock);
  const jitter = entry.field("/jitter", "Jitter", { value: old?.jitter ?? "", placeholder: "1m", hint: "Each occurrence is delivered later by less than this." });
  const policy = entry.field("/catch_up/policy /catch_up", "Catch up after an outage", {}, "select", [["last", "the latest missed occurrence"], ["all", "all missed occurrences"], ["none", "none"]].map(([value, name]) => el("option", { value, selected: value === (old?.catch_up?.policy ?? "last") }, name)));
  const within = entry.field("/catch_up/within", "Catch up within", { value: old?.catch_up?.within ?? "", placeholder: "P1D" });
  const dates = entry.field("/exclude/dates /exclude", "Days without occurrences", { value: old?.exclude?.dates?.join(", ") ?? "", placeholder: "2026-12-24, 2026-12-31" });
  const calendars = entry.field("/exclude/calendars", "Calendars whose days have none", { value: old?.exclude?.calendars?.join(", ") ?? "" });
  const once = entry.field("/at_most_once_per", "At most once per", {}, "select", ["", "hour", "day", "week", "month"].map((value) => el("option", { value, selected: value === (old?.at_most_once_per ?? "") }, value || "no limit")));
  const overlap = entry.field("/overlap", "While the one before has not ended", {}, "select", [["", "deliver it nevertheless"], ["skip", "skip it"], ["queue", "let it wait"]].map(([value, name]) => el("option", { value, selected: value === (old?.overlap ?? "") }, name)));
  const key = entry.field("/ordering_key", "Ordering key", { value: old?.ordering_key ?? "" });

  const length = (field) => text(field) && duration(text(field));
  /** Return the members of the rule: what the preview needs. */
  function rule() {
    const excluded = { dates: words(dates.input.value), calendars: words(calendars.input.value) };
    return given({
      ...(byCron() ? { cron: text(cron), timezone: text(zone) } : { every: length(every) }), start: start.text(), end: end.text(), at_most_once_per: once.input.value,
      exclude: excluded.dates.length || excluded.calendars.length ? excluded : undefined,
    });
  }
  function body() {
    const made = rule();
    if (byCron() && !made.cron) throw refusal("/cron", "an expression is missing, such as 0 9 * * MON-FRI");
    if (!byCron() && !made.every) throw refusal("/every", "an interval is missing, such as 15m");
    const missed = given({ policy: policy.input.value, within: length(within) });
    return {
      fields: {
        // What the form has no fields for stays.
        ...made, ...given({ retry: old?.retry, timeout: old?.timeout, content_type: old?.content_type, jitter: length(jitter), overlap: overlap.input.value, ordering_key: text(key), on_delivered: text(channels.delivered), on_dead: text(channels.dead) }), ...channelBody(text(channels.channel)),
        ...(missed.policy === "last" && !missed.within ? {} : { catch_up: missed }),
      },
      payload: payload.text(),
    };
  }

  // Only what the preview finds is shown and taken away by it: an answer to the whole form stays.
  const ruled = ["/cron", "/timezone", "/every", "/start", "/end", "/at_most_once_per", "/exclude/dates", "/exclude/calendars"].map((pointer) => entry.fields.get(pointer));
  const preview = livePreview(ctx, () => {
    const made = rule();
    return made.cron || made.every ? made : null;
  }, (error) => {
    for (const each of ruled) each.refuse("");
    for (const each of error?.errors ?? []) {
      const field = entry.find(each.pointer ?? "");
      if (ruled.includes(field)) field.refuse(sentenceOf(each.detail ?? ""));
    }
  });
  const copied = copyAs({ "This schedule": () => {
    try {
      return text(id) ? puts(ctx, text(id), body()) : { missing: "Give the schedule an id first." };
    } catch (error) {
      if (!(error instanceof NotJson) && error.status !== 422) throw error;
      return { missing: error.detail ?? error.message };
    }
  } });
  function arrange() {
    cron.box.hidden = zone.box.hidden = quick.hidden = !byCron();
    every.box.hidden = byCron();
    for (const each of [start, end]) each.hint.textContent = `On the clock of ${clock()}.`;
  }
  entry.changed = () => {
    arrange();
    copied.update();
    preview.update();
  };
  const held = el("div", {});
  entry.root.append(el("div", { class: "pair" }, id.box, kind.box, cron.box, zone.box, every.box), zoneList, quick, preview.box, el("div", { class: "pair" }, channels.channel.box), channels.list, payload.box,
    el("details", { class: "more" }, el("summary", {}, "More: start and end, days without, overlap, catch-up, callbacks"),
      el("div", { class: "pair" }, start.box, end.box, dates.box, calendars.box, once.box, overlap.box, policy.box, within.box, jitter.box, key.box, channels.delivered.box, channels.dead.box)),
    copied.root, held, entry.note, entry.buttons);
  if (old) entry.buttons.append(el("button", { type: "button", onclick: () => show(old) }, "Back"));
  open(old ? ["Edit ", own(old.id)] : "New schedule", entry.root);
  byId("details").classList.add("wide");
  (old ? cron.box.hidden ? every : cron : id).input.focus();
  arrange();
  preview.update(true);

  let lost = ""; // the id of a new schedule whose last attempt had no answer
  async function send() {
    const name = text(id);
    if (!name) throw refusal("/id", "an id is missing, such as nightly");
    if (!ID.test(name)) throw refusal("/id", "an id has only A-Z a-z 0-9 _ - : @ ~, such as nightly");
    const path = `v1/schedules/${enc(name)}`;
    const sent = bodyOf(body());
    held.replaceChildren();
    let data;
    try {
      // A form for a new schedule must not replace one that has the id by chance, or that another page has just created.
      data = await call("PUT", path, { query: ctx.query, raw: sent, match: tag, creates: !old });
    } catch (error) {
      if (error.status === 412) return old ? conflict(path) : taken(path);
      if (!old && error.unsure) lost = name;
      throw error;
    }
    tell(`${data.id} is stored.`);
    done(data);
    if (isShown(entry.root)) show(data);
  }

  /** Say that the id of a new schedule is taken, and offer to look at that schedule. */
  async function taken(path) {
    const why = lost && lost === text(id) ? "there is a schedule with this id now: your first attempt, whose answer was lost, may have stored it" : "there is a schedule with this id already; choose another id, or edit that schedule";
    const there = await call("GET", path, { query: ctx.query });
    held.replaceChildren(el("p", { class: "actions" }, el("button", { type: "button", onclick: () => show(there) }, "Show that schedule")));
    throw refusal("/id", why);
  }

  /** Show what has changed since the schedule was read: load it, or save over it. */
  async function conflict(path) {
    const now = await call("GET", path, { query: ctx.query, whole: true });
    askOver(entry, held, { before: old, now, ignored: RUNNING, mine: "content", load: () => scheduleForm(ctx, now, done, show), save: (etag) => (tag = etag) });
  }
}

const CONTENT = ["cron", "every", "timezone", "start", "end", "jitter", "catch_up", "exclude", "at_most_once_per", "overlap", "ordering_key", "channel", "channels", "retry", "timeout", "content_type", "on_delivered", "on_dead"];
/** Return the request that stores the content of a schedule as it is. */
export const likeSchedule = (ctx, { data, text: written }) => puts(ctx, data.id, { fields: given(Object.fromEntries(CONTENT.map((name) => [name, data[name]]))), payload: member(written, "payload") });
