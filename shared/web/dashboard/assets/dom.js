// Elements and texts. What comes from the API goes into the page as text nodes and attribute values only, never as markup.

import { Refused, present } from "./api.js";

/** An element. `props`: `class`, `on…` handlers, `data-…`, `aria-…`, properties; children: nodes, texts, null. */
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

/** A text of somebody else's in a line of this page's: its direction, and marks in it that change direction, end with it. */
export const own = (text) => el("bdi", {}, text);

/** Tell those who listen instead of looking. */
export function say(text) {
  byId("said").textContent = text;
}

const SHORT = 14; // characters that are not broken over lines

/** A table whose rows are arrays of cells. */
export function table(caption, heads, rows) {
  const head = el("tr", {}, heads.map((each) => el("th", { scope: "col" }, each)));
  const cells = (row) => row.map((cell, at) => el(at ? "td" : "th", { ...(at ? { "data-head": heads[at] } : { scope: "row" }), class: at && typeof cell === "string" && cell.length <= SHORT ? "tight" : null }, cell));
  const body = rows.map((row) => (row instanceof Node ? row : el("tr", {}, cells(row))));
  return el("div", { class: "scroll" },
    el("table", {}, el("caption", { class: "visually-hidden" }, caption), el("thead", {}, head), el("tbody", {}, body)));
}

// What had the focus last, until a pointer goes elsewhere: what is disabled or made anew loses it.
let held = null;
document.addEventListener("focusin", (event) => (held = event.target));
document.addEventListener("pointerdown", () => (held = null));

/** The `data-keep` of what has the focus in `root`, or had it until it was taken away. */
export function keeps(root) {
  const has = document.activeElement === document.body ? held : document.activeElement;
  return root.contains(has) ? has.dataset.keep : undefined;
}

/** The focus goes to the like of what had it. */
export function focusOn(root, kept) {
  if (kept && document.activeElement?.dataset?.keep !== kept) [...root.querySelectorAll("[data-keep]")].find((each) => each.dataset.keep === kept)?.focus({ preventScroll: true });
}

/** A dialog with texts and buttons; Escape closes it. `body`: nodes. */
export function open(title, ...body) {
  const dialog = byId("details");
  const close = el("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => dialog.close() }, "×");
  dialog.replaceChildren(el("header", {}, el("h2", { id: "details-title" }, title), close), ...body);
  const [panel, kept] = [document.activeElement?.closest(".panel"), document.activeElement?.dataset.keep];
  if (panel) dialog.addEventListener("close", () => (document.activeElement === document.body || dialog.contains(document.activeElement)) && focusOn(panel, kept), { once: true });
  if (!dialog.open) dialog.showModal();
  return dialog;
}

/**
 * A dialog that asks before something is done: `about` says what, `act` is the button's text. `doing(tell)` does it and may tell how far it is; the dialog closes when it
 * is done, and stays with what was wrong. `fields`: what else is asked.
 */
export function confirm(title, about, act, doing, ...fields) {
  const told = el("p", { class: "note", role: "alert", hidden: true });
  const button = el("button", { type: "submit", class: "primary" }, act);
  const form = el("form", {}, el("p", {}, about), fields, told, button);
  const tell = (text, kind = "") => {
    told.hidden = !text;
    told.className = `note ${kind}`;
    told.textContent = text;
  };
  const dialog = open(title, form);
  (fields.find((each) => each.tagName === "INPUT") ?? button).focus();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    tell("");
    try {
      await doing(tell);
      // Meanwhile it may have been closed, and another be open in its place.
      if (form.isConnected) dialog.close();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      tell([told.textContent, problem(error)].filter(Boolean).join(" "), "wrong");
      button.disabled = false;
    }
  });
}

/** What the service refused, in a line. */
export const problem = (error) => [error.title, error.detail, ...error.errors.map((each) => `${each.pointer ?? ""} ${each.detail ?? ""}`.trim())].filter(Boolean).join(": ");

/** Rows of names and values. */
export function facts(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

export function badge(text, kind = "") {
  return el("span", { class: `badge ${kind}` }, text);
}

const NUMBER = new Intl.NumberFormat("en");
export const count = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));
export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

/** Milliseconds for people: 850 ms, 12.4 s, 3 min 20 s, 5 h 2 min, 3 d 4 h. */
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
/** Local time of day, of seconds since 1970. */
export function clock(seconds, exact = false) {
  const at = new Date(seconds * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}${exact ? `:${two(at.getSeconds())}` : ""}`;
}

/** A time from the API, local, with the day where it is not today's. */
export function moment(text) {
  if (!text) return "–";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text;
  const day = at.toDateString() === new Date(present()).toDateString() ? "" : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  return el("time", { dateTime: text, title: text }, `${day}${clock(at.getTime() / 1000, true)}`);
}

export const seconds = (text) => Date.parse(text) / 1000;

/** At most so many characters. */
export function cut(text, most) {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}

/** At most so many characters, the middle left out: names of one kind differ at their ends. */
export function folded(text, most) {
  return text.length > most ? `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}` : text;
}
