// Finds out if the service answers. One probe and one banner stand for the failures of all panels.

import { Refused, call } from "./api.js";
import { byId, say, sentence } from "./dom.js";

const PROBE = 10_000; // longest wait for a probe's answer, in ms
const PAUSE = 5000; // ms between probes while the service is away
/** Return true for a failure of an app that is away, or whose storage is: no answer, a gateway's, or another page in place of the API's. */
const silent = ({ status }) => status < 400 || [502, 503, 504].includes(status);
const SERVICE = { what: "The service does not answer", next: "check that the app runs and that this device reaches it" };
const STORAGE = { what: "The storage of the service does not answer", next: "check the storage account, and the app's access to it" };

let back = () => {};
let gone = () => {};
let last = null; // time of day of the latest data of a panel
let away = null; // the text of the banner
let probing = null;
let next = 0;

/** Set the function that is called when the service answers again. */
export function whenBack(callback) {
  back = callback;
}

/** Set the function that is called when the service no longer answers. */
export function whenAway(callback) {
  gone = callback;
}

/** Note the time of day at which a panel got its data. */
export function answered(at) {
  last = at;
}

export const isAway = () => away !== null;

/** Return the reason why the service is away, or null if it answers. */
async function reason() {
  try {
    await call("GET", "readyz", { token: "", timeout: PROBE });
    return null;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.body?.storage) return error.body.storage.reachable ? null : STORAGE;
    return silent(error) ? SERVICE : null;
  }
}

function show(text) {
  const was = away;
  away = text && (was ?? `${sentence(text.what)}${last ? ` The latest data on this page is from ${last}.` : ""} The page tries again automatically. If it lasts: ${sentence(text.next)}`);
  if (away === was) return;
  byId("away").textContent = away ?? "";
  byId("away").hidden = away === null;
  byId("live").toggleAttribute("data-away", away !== null);
  byId("panels").toggleAttribute("data-away", away !== null);
  if (away) return gone();
  say("The service answers again.");
  back();
}

async function probe() {
  try {
    show(await reason());
  } finally {
    next = performance.now() + PAUSE;
  }
  return isAway();
}

/** Find out whether the service is away, after a call failed with `error`. Panels share one probe. */
export async function lost(error) {
  if (!silent(error)) return false;
  return (probing ??= probe().finally(() => (probing = null)));
}

/** Ask again, if the service is away and it is time. */
export function retry() {
  if (isAway() && performance.now() > next) probing ??= probe().finally(() => (probing = null));
}

/** Forget that the service is away: the key was forgotten. */
export function forget() {
  away = null;
  byId("away").hidden = true;
  for (const id of ["live", "panels"]) byId(id).removeAttribute("data-away");
  last = null;
}
