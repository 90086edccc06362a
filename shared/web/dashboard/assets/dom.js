// Elements and texts. Data from the API enters the page only as text nodes and attribute values, never as markup.

import { Refused, call, present } from "./api.js";

/** Create an element. `props`: `class`, `on…` handlers, `data-…`, `aria-…`, properties; children: nodes, texts, null. */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "scope" || name === "for") made.setAttribute(name, String(value));
    else made[name] = value;
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Wrap a text from a user, so that its writing direction does not affect the text around it. */
export const own = (text) => el("bdi", {}, text);

/** Announce a text to screen readers. */
export function say(text) {
  byId("said").textContent = text;
}

const TOLD = 8000; // ms for which the result of an action is shown
let telling = null;

/** Show the result of an action for some seconds, and announce it. */
export function tell(text) {
  clearTimeout(telling);
  byId("toast").textContent = text;
  telling = setTimeout(() => (byId("toast").textContent = ""), TOLD);
}

const SHORT = 14; // most characters of a cell that is not broken over lines

/** Create a table; rows are arrays of cells. */
export function table(caption, heads, rows) {
  const head = el("tr", {}, heads.map((each) => el("th", { scope: "col" }, each || el("span", { class: "visually-hidden" }, "actions"))));
  const cells = (row) => row.map((cell, at) => el(at ? "td" : "th", { ...(at ? { "data-head": heads[at] } : { scope: "row" }), class: at && typeof cell === "string" && cell.length <= SHORT ? "tight" : null }, cell));
  const body = rows.map((row) => (row instanceof Node ? row : el("tr", {}, cells(row))));
  return el("div", { class: "scroll" },
    el("table", {}, el("caption", { class: "visually-hidden" }, caption), el("thead", {}, head), el("tbody", {}, body)));
}

// The element that last had the focus, until a pointer is pressed: a disabled or replaced element loses the focus.
let held = null;
document.addEventListener("focusin", (event) => (held = event.target));
document.addEventListener("pointerdown", () => (held = null));

/** Return the `data-keep` of the element in `root` that has the focus, or had it until it was disabled or replaced. */
export function keeps(root) {
  const has = document.activeElement === document.body ? held : document.activeElement;
  return root.contains(has) ? has.dataset.keep : undefined;
}

/** Return the `data-keep` of all elements in `root`, in their order. */
export const keepsOf = (root) => [...root.querySelectorAll("[data-keep]")].map((each) => each.dataset.keep);

/**
 * Move the focus to the replacement of the element that had it. If there is none, it moves to the next element of the same kind in `order`, the former elements, or else to `last`.
 * A `data-keep` begins with its kind: "redrive order-17".
 */
export function focusOn(root, kept, order = [], last = null) {
  if (!kept || document.activeElement?.dataset?.keep === kept) return;
  const found = new Map([...root.querySelectorAll("[data-keep]")].map((each) => [each.dataset.keep, each]));
  const kind = kept.split(" ")[0];
  const alike = order.filter((each) => each.split(" ")[0] === kind);
  const at = alike.indexOf(kept);
  const next = [kept, ...alike.slice(at + 1), ...alike.slice(0, Math.max(0, at)).reverse()].find((each) => found.has(each));
  (found.get(next) ?? last)?.focus({ preventScroll: true });
}

let turns = 0; // dialogs that were opened, closed, or asked for with `asking`
byId("details").addEventListener("close", () => (turns += 1));

/** Note that a dialog is about to be opened. Return a function that is true until a person has opened, closed or asked for another: what comes later opens nothing. */
export function asking() {
  const mine = (turns += 1);
  return () => mine === turns;
}

/** Return true while a part of a dialog is on the screen. */
export const isShown = (part) => part.isConnected && byId("details").open;

/** Open a dialog with texts and buttons; Escape closes it. `body`: nodes. */
export function open(title, ...body) {
  turns += 1;
  const dialog = byId("details");
  const close = el("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => dialog.close() }, "×");
  dialog.replaceChildren(el("header", {}, el("h2", { id: "details-title" }, title), close), ...body);
  const [panel, kept] = [document.activeElement?.closest(".panel"), document.activeElement?.dataset.keep];
  if (panel) dialog.addEventListener("close", () => (document.activeElement === document.body || dialog.contains(document.activeElement)) && focusOn(panel, kept), { once: true });
  dialog.className = "";
  if (dialog.open) close.focus();
  else dialog.showModal();
  return dialog;
}

/**
 * Open a dialog that asks before an action. `about`: the question. `act`: the button's text. `doing(report)` acts and may report progress; the dialog closes when it is
 * done, and shows a failure. `fields`: further inputs.
 */
export function confirm(title, about, act, doing, ...fields) {
  const note = el("p", { class: "note", role: "alert", hidden: true });
  const button = el("button", { type: "submit", class: "primary" }, act);
  const form = el("form", {}, el("p", {}, about), fields, note, el("p", {}, button));
  const report = (text, kind = "") => {
    note.hidden = !text;
    note.className = `note ${kind}`;
    note.textContent = text;
  };
  const dialog = open(title, form);
  (form.querySelector("input") ?? button).focus();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    report("");
    try {
      await doing(report);
      // The dialog may have been closed meanwhile, and another opened.
      if (isShown(form)) dialog.close();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const text = problem(error);
      report([note.textContent, text].filter(Boolean).join(" "), "wrong");
      button.disabled = false;
      if (!isShown(form)) tell(`${title}: ${text}`);
    }
  });
}

/** Read something before an action, and act unless a person has meanwhile turned to something else. `name`: that of what is read. `act` gets what `call` returns with `whole`. */
export async function readFirst(name, path, query, act) {
  const wanted = asking();
  try {
    const found = await call("GET", path, { query, whole: true });
    if (wanted()) act(found);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (wanted()) open("Not possible", el("p", { class: "note wrong", role: "alert" }, problem(error)));
    else tell(`${name}: ${problem(error)}`);
  }
}

/** Return a text with a full stop at its end. */
export const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** Return the text of a failure, in a line. */
export function problem(error) {
  const more = error.errors.filter((each) => !error.detail.includes(each.detail)).map((each) => `${each.pointer ?? ""} ${each.detail ?? ""}`.trim());
  const text = [error.title, error.detail, ...more].filter(Boolean).join(": ");
  return error.advice ? `${sentence(text)} ${error.advice}` : text;
}

/** Create rows of names and values. */
export function facts(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

export function badge(text, kind = "") {
  return el("span", { class: `badge ${kind}` }, text);
}

/** Return the heading of a payload. `type`: that of the bytes of which it is the base64; undefined for JSON. */
export const payloadHead = (type) => el("h3", {}, type ? ["Payload (base64 of ", own(type), ")"] : "Payload");

/** Return a retry policy for people: attempts 3; within PT1H. */
export const policyText = (policy) => Object.entries(policy).map(([name, value]) => `${name} ${[value].flat().join(", ")}`).join("; ");

const NUMBER = new Intl.NumberFormat("en");
export const count = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));
export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

/** Format milliseconds for people: 850 ms, 12.4 s, 3 min 20 s, 5 h 2 min, 3 d 4 h. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 59.95) return `${s.toFixed(1)} s`;
  const [m, h] = [Math.floor(s / 60), Math.floor(s / 3600)];
  if (m < 60) return `${m} min ${Math.floor(s % 60)} s`;
  return h < 48 ? `${h} h ${m % 60} min` : `${Math.floor(h / 24)} d ${h % 24} h`;
}

const two = (value) => String(value).padStart(2, "0");
/** Format seconds since 1970 as the local time of day. */
export function clock(seconds, exact = false) {
  const at = new Date(seconds * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}${exact ? `:${two(at.getSeconds())}` : ""}`;
}

/** Format a time from the API as local time, with the day unless it is today. */
export function moment(text) {
  if (!text) return "–";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text;
  const day = at.toDateString() === new Date(present()).toDateString() ? "" : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  return el("time", { dateTime: text, title: text }, `${day}${clock(at.getTime() / 1000, true)}`);
}

/** Format a time as the value of an input of local time; the seconds are kept. */
export function localValue(text) {
  const at = new Date(text);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${clock(at.getTime() / 1000, true)}`;
}

const LATEST = "9999-12-31T23:59:59"; // years of the API have four digits
/** Limits of an input of local time: without them, browsers take years of six digits. */
export const limitsOf = (type) => (type === "datetime-local" ? { max: LATEST } : {});

/** Return the time of an input of local time for the API; undefined while it is empty. */
export const chosenTime = (input) => (input.value ? new Date(input.value).toISOString() : undefined);

let fields = 0;
/** Create an input with its label. `props`: of the input. Return both. */
export function field(label, props = {}, kind = "input", ...children) {
  const id = `field-${(fields += 1)}`;
  const input = el(kind, { id, autocomplete: "off", ...limitsOf(props.type), ...props }, ...children);
  return { input, box: el("p", { class: props.type === "checkbox" ? "field tick" : "field" }, el("label", { for: id }, label), input) };
}

export const seconds = (text) => Date.parse(text) / 1000;

/** Cut a text to `most` characters. */
export function cut(text, most) {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}

/** Shorten a text to `most` characters in the middle: similar names differ at their ends. */
export function folded(text, most) {
  return text.length > most ? `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}` : text;
}
