// Forms that create and change events and schedules: each problem stands beside the field that it names, and the payload is checked while it is typed.

import { Refused, all, call, enc } from "./api.js";
import { el, isShown, limitsOf, own, problem, say, table, tell } from "./dom.js";
import { NotJson, tokens } from "./json.js";
import { statsOf } from "./events.js";
import { timeIn } from "./times.js";

let made = 0;

/** A form with fields by their JSON pointers. */
export class Entry {
  /** `act`: the text of its button. `send()` does the work; what it throws is shown beside the fields. */
  constructor(act, send) {
    this.fields = new Map();
    this.note = el("p", { class: "note wrong", role: "alert", hidden: true });
    this.button = el("button", { type: "submit", class: "primary" }, act);
    this.buttons = el("p", { class: "actions" }, this.button);
    this.root = el("form", { class: "entry", noValidate: true, onsubmit: (event) => this.submit(event, send) });
    this.changed = () => {};
    this.root.addEventListener("input", () => this.changed());
    this.root.addEventListener("change", () => this.changed());
  }

  /** Create an input with its label and a hint. `pointers`: those of the problems that belong to it, with spaces between them. */
  field(pointers, label, { hint = "", ...props } = {}, kind = "input", ...children) {
    const id = `entry-${(made += 1)}`;
    const about = el("span", { id: `${id}-hint`, class: "hint" }, hint);
    const fault = el("span", { id: `${id}-fault`, class: "fault", hidden: true });
    const input = el(kind, { id, autocomplete: "off", spellcheck: false, "aria-describedby": `${id}-fault ${id}-hint`, ...limitsOf(props.type), ...props }, ...children);
    const field = { input, hint: about, box: el("div", { class: props.type === "checkbox" ? "field tick" : "field" }, el("label", { for: id }, label), input, fault, about) };
    field.refuse = (text) => {
      fault.textContent = text;
      fault.hidden = !text;
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    };
    // Not with `change`, which a press of a button causes: the form would move under the pointer, and the press would be lost.
    input.addEventListener("input", () => field.refuse(""));
    for (const pointer of pointers.split(" ").filter(Boolean)) this.fields.set(pointer, field);
    return field;
  }

  /** Return the trimmed value of a field's input; undefined while it is empty. */
  static text(field) {
    return field.input.value.trim() || undefined;
  }

  /** Show a refusal: beside the fields that it names, else above the button. */
  refuse(error, focus = true) {
    this.clear();
    const left = [];
    let first = null;
    for (const each of error.errors) {
      const field = this.find(each.pointer ?? "");
      if (!field) left.push(`${each.pointer ?? ""} ${each.detail ?? ""}`.trim());
      else if (field.input.getAttribute("aria-invalid") !== "true") {
        field.refuse(sentenceOf(each.detail ?? ""));
        const folded = field.input.closest("details:not([open])");
        if (folded) folded.open = true;
        if (!first || first.input.compareDocumentPosition(field.input) & Node.DOCUMENT_POSITION_PRECEDING) first = field;
      }
    }
    const text = !error.errors.length ? problem(error) : left.length ? [error.title, ...left].filter(Boolean).join(": ") : "";
    this.note.textContent = text;
    this.note.hidden = !text;
    if (first && focus) first.input.focus();
    if (first) say(`${first.box.querySelector("label").textContent}: ${first.box.querySelector(".fault").textContent}`);
  }

  /** Return the field of a problem's pointer, or of the nearest part that has one. */
  find(pointer) {
    for (let at = pointer; at; at = at.slice(0, Math.max(0, at.lastIndexOf("/")))) if (this.fields.has(at)) return this.fields.get(at);
    return null;
  }

  clear() {
    for (const field of this.fields.values()) field.refuse("");
    this.note.hidden = true;
  }

  async submit(event, send) {
    event.preventDefault();
    if (this.button.disabled) return;
    this.clear();
    this.button.disabled = true;
    try {
      await send();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.refuse(error);
      if (!isShown(this.root)) tell(problem(error));
    } finally {
      this.button.disabled = false;
    }
  }
}

/** Return the text of a problem as it stands beside a field. */
export const sentenceOf = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "Not accepted.");

/** Return a refusal as the service would give it, of a field that the page itself cannot read. */
export const refusal = (pointer, detail) => new Refused(422, "Invalid content", detail, { errors: [{ pointer, detail }] });

/** Return the ms of a field of local time on the clock of a zone. Throws `Refused` for a time that is none, or that no zone has. */
export function timeOf(field, pointer, zone) {
  const { validity, value } = field.input;
  if (validity.rangeOverflow) throw refusal(pointer, "the year has more than four digits; write a time such as 2031-12-31 09:00");
  const found = validity.badInput ? null : timeIn(value, zone);
  if (!found) throw refusal(pointer, "a day and a time are missing, such as 2031-12-31 09:00");
  return found;
}

/** Return names and values of lines such as team=blue; undefined without a line. Throws `Refused`. */
export function pairsOf(field, pointer) {
  const lines = field.input.value.split("\n").map((each) => each.trim()).filter(Boolean);
  const pairs = new Map();
  for (const each of lines) {
    const [name, at] = [each.slice(0, Math.max(0, each.indexOf("="))), each.indexOf("=")];
    if (at < 1) throw refusal(pointer, `${each} is not NAME=VALUE`);
    if (pairs.has(name)) throw refusal(pointer, `${name} is there twice; give it once`);
    pairs.set(name, each.slice(at + 1));
  }
  return lines.length ? Object.fromEntries(pairs) : undefined;
}

/** Return pairs as the lines that `pairsOf` reads. */
export const linesOf = (pairs) => Object.entries(pairs ?? {}).map(([name, value]) => `${name}=${value}`).join("\n");

/** Add the fields of an event's target to a form: what it changes of the requests to its http channel. `target`: the present one, of which pairs that are not touched stay as they are. */
export function targetFields(entry, target = {}) {
  const path = entry.field("/target/path /target", "Path", { value: target.path ?? "", placeholder: "/orders/17", hint: "Added to the path of the http channel's URL." });
  const method = entry.field("/target/method", "Method", {}, "select", ["POST", "PUT", "PATCH", "GET", "DELETE"].map((value) => el("option", { value, selected: value === (target.method ?? "POST") }, value)));
  const query = entry.field("/target/query", "Query", { value: linesOf(target.query), rows: 2, placeholder: "page=2", hint: "Added to the query of the URL: one NAME=VALUE in a line." }, "textarea");
  const headers = entry.field("/target/headers", "Headers", { value: linesOf(target.headers), rows: 2, placeholder: "x-order=17", hint: "Added to the headers of the channel: one NAME=VALUE in a line." }, "textarea");
  return {
    boxes: [path.box, method.box, query.box, headers.box],
    method,
    /** Return the target; undefined for one that changes nothing. Throws `Refused`. */
    body() {
      const pairs = (field, name) => (field.input.value === linesOf(target[name]) ? target[name] : pairsOf(field, `/target/${name}`));
      const found = given({ path: Entry.text(path), query: pairs(query, "query"), headers: pairs(headers, "headers") });
      const chosen = method.input.value === "POST" ? {} : { method: method.input.value };
      return Object.keys({ ...found, ...chosen }).length ? { ...found, ...chosen } : undefined;
    },
  };
}

/** Add the field of a payload to a form. `text()` returns what is sent; throws `Refused` for what is not JSON. `unchanged`: JSON text that is sent as it is while the field is not touched. `optional()`: true if the field may be empty; `text()` is then undefined. `type`: that of the bytes of which the payload is the base64. */
export function payloadField(entry, value, unchanged, optional = () => false, type = undefined) {
  const field = entry.field("/payload", type ? ["Payload (JSON: the base64 of ", own(type), ")"] : "Payload (JSON)", { value, rows: Math.min(14, Math.max(4, value.split("\n").length)), class: "code" }, "textarea");
  const state = field.hint;
  const read = () => (unchanged !== undefined && field.input.value === value ? unchanged : field.input.value);
  const none = () => !field.input.value.trim() && optional();
  let was = true;
  function check() {
    let text;
    try {
      text = none() ? "Valid: the request has no body." : `Valid JSON, ${new TextEncoder().encode(tokens(read()).join("")).length.toLocaleString("en")} bytes.`;
    } catch (error) {
      if (!(error instanceof NotJson)) throw error;
      text = error.message;
    }
    const valid = text.startsWith("Valid");
    state.textContent = text;
    state.classList.toggle("bad", !valid);
    if (valid !== was) say(text);
    was = valid;
  }
  field.input.addEventListener("input", check);
  check();
  return {
    ...field,
    text() {
      if (none()) return undefined;
      try {
        tokens(read());
      } catch (error) {
        if (!(error instanceof NotJson)) throw error;
        throw refusal("/payload", `${error.message} A text needs its own quotes: "hello".`);
      }
      return read();
    },
  };
}

/** Return the names of the tenant's channels, as far as the key may see them. */
async function channelNames(ctx) {
  if (ctx.admin && ctx.tenant) return (await all(`v1/tenants/${enc(ctx.tenant)}/channels`, {}, undefined, 200, 1)).items.map((each) => each.name);
  return Object.keys((await statsOf(ctx)).channels);
}

let lists = 0;
/** Return a list of names that inputs suggest, which is filled once `names` is known. A list that cannot be read suggests nothing. */
export function suggestions(names) {
  const list = el("datalist", { id: `names-${(lists += 1)}` });
  Promise.resolve(names).then((found) => list.replaceChildren(...found.map((value) => el("option", { value }))), (error) => {
    if (!(error instanceof Refused)) throw error;
  });
  return list;
}

/** Add the fields of channels to a form: where it is delivered, and where its callbacks go. `several`: more than one may be named. */
export function channelFields(entry, ctx, { channel, on_delivered: delivered, on_dead: dead }, several) {
  const list = suggestions(channelNames(ctx));
  const field = (pointer, label, value, hint) => {
    const found = entry.field(pointer, label, { value: value ?? "", hint });
    found.input.setAttribute("list", list.id);
    return found;
  };
  return {
    list,
    channel: field("/channel /channels", several ? "Channel, or several" : "Channel", channel, several ? "Several, with commas between them: each gets an event of its own." : ""),
    delivered: field("/on_delivered", "Callback to channel, once delivered", delivered),
    dead: field("/on_dead", "Callback to channel, if dead or lapsed", dead),
  };
}

/** Return the members of a body for the text of the field of channels. */
export function channelBody(text) {
  const names = (text ?? "").split(",").map((each) => each.trim()).filter(Boolean);
  return names.length > 1 ? { channels: names } : names.length ? { channel: names[0] } : {};
}

/** Leave out members without a value. */
export const given = (members) => Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined && value !== null && value !== ""));

/** Return the members that differ between two representations, as rows of a table. `ignored`: names that mean nothing to a person. */
export function differences(before, now, ignored = []) {
  const shown = (value) => (value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));
  return [...new Set([...Object.keys(before), ...Object.keys(now)])].filter((name) => !ignored.includes(name) && JSON.stringify(before[name]) !== JSON.stringify(now[name]))
    .map((name) => [name, el("bdi", {}, shown(before[name])), el("bdi", {}, shown(now[name]))]);
}

/**
 * Ask what becomes of a form whose subject has changed since it was read. `place`: where it is asked. `before`: what was read; `now`: the same as it is now, with its entity tag.
 * `load()` opens the form anew; `save(etag)` sends it once more; `mine`: what it would save.
 */
export function askOver(entry, place, { before, now, ignored, mine, load, save }) {
  const over = el("button", { type: "button", onclick: () => {
    save(now.etag);
    place.replaceChildren();
    entry.root.requestSubmit();
  } }, `Save my ${mine} over it`);
  const note = conflictNote(before, now.data, ignored, el("button", { type: "button", class: "primary", onclick: load }, "Load it"), over);
  place.replaceChildren(note);
  note.focus();
}

/** Return a note that something has changed since it was read: what it was and is, and the choices as buttons. */
export function conflictNote(before, now, ignored, ...buttons) {
  const rows = differences(before, now, ignored);
  return el("div", { class: "conflict", role: "alert", tabIndex: -1 }, el("p", {}, "This was changed by somebody else, or by the service, since you opened it. Nothing is saved yet."),
    rows.length ? table("Changes", ["field", "was", "is now"], rows) : el("p", {}, "Its present content is what you saw."), el("p", { class: "actions" }, buttons));
}
