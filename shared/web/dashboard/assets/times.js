// Durations, and times of any time zone: the forms that a person writes and reads, and the form that the API takes.

import { present } from "./api.js";
import { el, span } from "./dom.js";

const DAY = 86_400_000;
/** ms, a million days: longer durations are written as this one, of which the service says that it is too long. */
export const LONGEST = 1e6 * DAY;
const UNITS = { ms: 1, s: 1000, sec: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: DAY, w: 7 * DAY };
const ISO = /^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d{1,3})?)S)?)?$/;

/** Return the ms of an ISO 8601 duration of the API; null for another text. */
export function durationMs(text) {
  const found = ISO.exec(text);
  if (!found || /[PT]$/.test(text)) return null;
  const [w, d, h, m, s] = found.slice(1).map((each) => Number((each ?? "0").replace(",", ".")));
  return Math.round(((w * 7 + d) * 24 + h) * 3_600_000 + m * 60_000 + s * 1000);
}

/** Return a duration such as `90s` or `1h 30m` as the API takes it. Another text is returned as it is: the service says what is wrong with it. */
export function duration(text) {
  const plain = text.trim();
  if (!/^(?:\d+(?:\.\d+)?\s*(?:ms|sec|s|min|m|h|d|w)\s*)+$/.test(plain)) {
    const written = plain.toUpperCase().startsWith("P") ? plain.toUpperCase() : plain;
    return durationMs(written) > LONGEST ? isoDuration(LONGEST) : written;
  }
  let ms = 0;
  for (const [, value, unit] of plain.matchAll(/(\d+(?:\.\d+)?)\s*(ms|sec|s|min|m|h|d|w)/g)) ms += Number(value) * UNITS[unit];
  return isoDuration(Math.min(Math.round(ms), LONGEST));
}

/** Return ms as an ISO 8601 duration in days, hours, minutes and seconds. */
export function isoDuration(ms) {
  const [d, h, m, s] = [Math.floor(ms / DAY), Math.floor(ms / 3_600_000) % 24, Math.floor(ms / 60_000) % 60, (ms % 60_000) / 1000];
  const time = `${h ? `${h}H` : ""}${m ? `${m}M` : ""}${s ? `${s}S` : ""}`;
  return d || time ? `P${d ? `${d}D` : ""}${time ? `T${time}` : ""}` : "PT0S";
}

// -- zones

export const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
/** Return the names of all zones that this browser knows. */
export const zones = () => [...new Set(["UTC", HERE, ...Intl.supportedValuesOf("timeZone")])];

const formats = new Map();
function format(zone) {
  if (!formats.has(zone)) formats.set(zone, new Intl.DateTimeFormat("en-u-ca-gregory-nu-latn", { timeZone: zone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric", weekday: "short" }));
  return formats.get(zone);
}

/** Return true for a zone that this browser knows. */
export function isZone(zone) {
  try {
    return Boolean(zone && format(zone));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return false;
  }
}

/** Return the clock of a zone at a time, as the ms of the same clock in UTC; and the day of the week. */
function clockAt(ms, zone) {
  const parts = Object.fromEntries(format(zone).formatToParts(ms).map(({ type, value }) => [type, value]));
  const [year, month, day, hour, minute, second] = ["year", "month", "day", "hour", "minute", "second"].map((name) => Number(parts[name]));
  return { at: Date.UTC(year, month - 1, day, hour, minute, second), weekday: parts.weekday };
}

/** Return the ms by which the clock of a zone is ahead of UTC. */
export const ahead = (ms, zone) => clockAt(ms, zone).at - Math.floor(ms / 1000) * 1000;

/** Return a difference from UTC as text, such as UTC+01:00. */
export function offsetText(ms) {
  const minutes = Math.abs(Math.round(ms / 60_000));
  return `UTC${ms < 0 ? "−" : "+"}${String(Math.floor(minutes / 60)).padStart(2, "0")}:${String(minutes % 60).padStart(2, "0")}`;
}

/** Return the value of an input of local time in a zone, with seconds. */
export const valueIn = (ms, zone) => new Date(clockAt(ms, zone).at).toISOString().slice(0, 19);

/** Return a time in a zone for people: Mon 2026-11-30 09:00:00. */
export const textIn = (ms, zone) => `${clockAt(ms, zone).weekday} ${valueIn(ms, zone).replace("T", " ")}`;

/**
 * Return the first time at which the clock of a zone has reached a local time (2026-11-30T09:00), and `change`: `gap` if the clock skips that time, `fold` if it shows it twice.
 * This is the rule by which the service reads the times of schedules. Null for a text that is no time.
 */
export function timeIn(local, zone) {
  const wanted = Date.parse(`${local}Z`);
  if (Number.isNaN(wanted)) return null;
  const [before, after] = [wanted - ahead(wanted - DAY, zone), wanted - ahead(wanted + DAY, zone)];
  const found = [before, after].filter((ms) => clockAt(ms, zone).at === wanted);
  if (found.length) return { at: Math.min(...found), change: found.length === 2 && before !== after ? "fold" : null };
  let [low, high] = [Math.min(before, after), Math.max(before, after)];
  while (high - low > 1000) {
    const middle = low + Math.floor((high - low) / 2000) * 1000;
    if (clockAt(middle, zone).at >= wanted) high = middle;
    else low = middle;
  }
  return { at: high, change: "gap" };
}

/** Return a sentence about the effect of a clock change on a local time (09:00); an empty text without a change. `real`: the local time that replaces it. */
export function changeText(change, local, real) {
  if (change === "gap") return `The clocks go forward on this day: ${local} does not exist, so it is ${real}.`;
  return change === "fold" ? `The clocks go back on this day: ${local} comes twice, and this is the first.` : "";
}

/** Return the distance of a time from now: in 10 h 40 min, 3 min 20 s ago. */
export function distance(ms, now = present()) {
  if (Math.abs(ms - now) < 1000) return "now";
  return ms > now ? `in ${span(ms - now)}` : `${span(now - ms)} ago`;
}

// -- the zone in which dialogs show times

let chosen = HERE;
export const chosenZone = () => chosen;

/** Return a choice of the zone. `changed` is called after each choice; `more`: further zones. */
export function zoneChoice(changed, ...more) {
  const select = el("select", { "aria-label": "Time zone of the times" }, [...new Set([HERE, "UTC", chosen, ...more.filter(isZone)])].map((zone) => el("option", { value: zone, selected: zone === chosen }, zone)));
  select.addEventListener("change", () => {
    chosen = select.value;
    changed();
  });
  return el("label", { class: "zone" }, "Times in ", select);
}
