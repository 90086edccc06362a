// Requests as text to copy: for curl, Python and the command `tocsin`. The key is never in them: it is $TOCSIN_KEY.
// Values come from forms and from events, so each is quoted such that a shell or Python reads it as one text.

import { enc } from "./api.js";
import { copyText } from "./clipboard.js";
import { el } from "./dom.js";
import { compact, python, pythonText, unseen, visible } from "./json.js";
import { durationMs } from "./times.js";

const LONG = 100_000; // characters of a body from which it is no argument of a program, of which Linux takes 131,072 bytes
const DURATIONS = new Set(["delay", "expires", "flex", "collapse", "every", "jitter", "timeout", "first", "max", "within"]);
const TIMES = new Set(["due", "start", "end"]);

/** Quote a text for a POSIX shell. */
export const quoted = (text) => (/^[A-Za-z0-9_./:@+-][A-Za-z0-9_./:@%+=-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
/** Always quote, for texts that read better so. */
const inQuotes = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const plainHttp = () => location.protocol === "http:" && !["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
const root = () => new URL("../", import.meta.url).href.replace(/\/api\/$/, "");

/** Return the JSON text of a body: its fields, which are values, and its payload, which is JSON text or undefined. */
export function bodyOf({ fields, payload }) {
  const text = JSON.stringify(fields);
  if (payload === undefined) return text;
  return `${text.slice(0, -1)}${text === "{}" ? "" : ","}"payload":${compact(payload)}}`;
}

const heredoc = (lines, text) => `${lines.join(" \\\n  ")} <<'END_OF_BODY'\n${text}\nEND_OF_BODY\n`;

function curl({ method, path, body, tenant }) {
  const lines = ["curl --fail-with-body --silent --show-error", `--request ${method}`, `--header "Authorization: Bearer $TOCSIN_KEY"`];
  const url = inQuotes(`${root()}/api/${path}${tenant ? `?tenant=${enc(tenant)}` : ""}`);
  if (!body) return `${[...lines, url].join(" \\\n  ")}\n`;
  lines.push("--header 'Content-Type: application/json'");
  const text = visible(bodyOf(body));
  if (text.length > LONG) return heredoc([...lines, "--data-binary @-", url], text);
  return `${[...lines, `--data-raw ${inQuotes(text)}`, url].join(" \\\n  ")}\n`;
}

// -- Python

const SPANS = [["days", 86_400_000], ["hours", 3_600_000], ["minutes", 60_000], ["seconds", 1000], ["milliseconds", 1]];
function pythonSpan(text) {
  const ms = durationMs(text);
  if (ms === null) return pythonText(text);
  const [name, unit] = SPANS.find(([, unit]) => ms % unit === 0 && ms >= unit) ?? ["seconds", 1000];
  return `timedelta(${name}=${ms / unit})`;
}

/** Return a field as Python: the client takes datetimes and timedeltas. */
function pythonValue(name, value) {
  if (DURATIONS.has(name) && typeof value === "string") return pythonSpan(value);
  if (TIMES.has(name)) return `datetime.fromisoformat(${pythonText(value)})`;
  if (name === "schedule") return `[${value.map(pythonSpan).join(", ")}]`;
  if (value && typeof value === "object" && !Array.isArray(value) && ["retry", "catch_up"].includes(name)) return `{${Object.entries(value).map(([key, each]) => `${pythonText(key)}: ${pythonValue(key, each)}`).join(", ")}}`;
  return python(JSON.stringify(value));
}

const pythonCall = (name, given) => (given.length > 1 ? `${name}(\n${given.map((each) => `        ${each},\n`).join("")}    )` : `${name}(${given.join("")})`);

function inPython({ tenant, run }) {
  const made = run.python();
  const options = [pythonText(root()), 'os.environ["TOCSIN_KEY"]', ...(tenant ? [`tenant=${pythonText(tenant)}`] : []), ...(plainHttp() ? ["allow_plain_http=True"] : [])];
  const needs = ["datetime", "timedelta"].filter((each) => made.includes(`${each}(`) || made.includes(`${each}.`));
  return `import os\n${needs.length ? `from datetime import ${needs.join(", ")}\n` : ""}\nimport tocsin\n\nwith tocsin.Client(${options.join(", ")}) as client:\n    ${made}\n`;
}

const named = (fields) => Object.entries(fields).map(([name, value]) => `${name}=${pythonValue(name, value)}`);
const without = (fields, ...names) => Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)));

// -- the command

/** An option whose value may begin with a hyphen. */
const option = (name, value) => (value.startsWith("-") ? quoted(`--${name}=${value}`) : `--${name} ${quoted(value)}`);
const LISTED = { channels: "channel" };

/** Return the options of the command for the fields; null if it has none for one of them. */
function options(fields) {
  const made = [];
  for (const [name, value] of Object.entries(fields)) {
    const flag = (LISTED[name] ?? name).replaceAll("_", "-");
    if (typeof value === "string") made.push([flag, value]);
    else if (name === "channels") made.push(...value.map((each) => [flag, each]));
    else if (name === "labels") made.push(...Object.entries(value).map(([label, each]) => ["label", `${label}=${each}`]));
    else if (name === "target") made.push(...["path", "method"].filter((each) => value[each]).map((each) => [each, value[each]]), ...[["query", value.query], ["header", value.headers]].flatMap(([each, pairs]) => Object.entries(pairs ?? {}).map(([key, text]) => [each, `${key}=${text}`])));
    else if (name === "retry") made.push(["retry", JSON.stringify(value)]);
    else if (name === "catch_up") made.push(["catch-up", value.policy], ...(value.within ? [["within", value.within]] : []));
    else if (name === "exclude") made.push(...(value.dates ?? []).map((each) => ["exclude", each]), ...(value.calendars ?? []).map((each) => ["calendar", each]));
    else return null;
  }
  // A shell shows what is pasted, and a terminal obeys some of these characters. No quoting escapes them in every shell.
  return made.some(([, value]) => unseen(value)) ? null : made.map(([flag, value]) => option(flag, value));
}

function command({ tenant, run }) {
  const { words, fields = {}, payload, id } = run;
  const given = options(fields);
  const hidden = "A value has invisible characters, which are not safe to paste into a shell. Copy curl or Python instead.";
  if (fields.content_type) return { missing: "The command reads the bytes of such a payload from a file. Copy curl or Python instead." };
  if (!given || (id && unseen(id))) return { missing: hidden };
  if (tenant) given.push(option("tenant", tenant));
  if (plainHttp()) given.push("--allow-plain-http");
  const lines = [`TOCSIN_URL=${quoted(root())} tocsin ${words}`, ...given];
  const last = id === undefined ? [] : [id.startsWith("-") ? `-- ${quoted(id)}` : quoted(id)];
  if (payload === undefined) return `${[...lines, ...last].join(lines.length + last.length > 3 ? " \\\n  " : " ")}\n`;
  const text = visible(payload);
  if (text.length > LONG) return heredoc([...lines, "--payload @-", ...last], text);
  return `${[...lines, text.startsWith("-") ? `--payload=${text}` : `--payload ${inQuotes(text)}`, ...last].join(" \\\n  ")}\n`;
}

// -- the requests

const tenantOf = (ctx) => ctx.query.tenant;

/** Return the request that creates an event. */
export function creates(ctx, body) {
  const { fields, payload } = body;
  const written = python(payload ?? "null");
  const call = fields.channels ? ["client.fan_out", [written, python(JSON.stringify(fields.channels))]] : ["client.schedule", [written]];
  return {
    method: "POST", path: "v1/events", body, tenant: tenantOf(ctx),
    run: { words: "events create", fields, payload, python: () => `event = ${pythonCall(call[0], [...call[1], ...named(without(fields, "channels"))])}\n    print(event.id${fields.channels ? "" : ", event.state, event.due"})` },
  };
}

/** Return the request that creates a schedule, or replaces its content. */
export function puts(ctx, id, body) {
  return {
    method: "PUT", path: `v1/schedules/${enc(id)}`, body, tenant: tenantOf(ctx),
    run: { words: "schedules put", id, fields: body.fields, payload: body.payload, python: () => `schedule = ${pythonCall("client.schedules.put", [pythonText(id), python(body.payload), ...named(body.fields)])}\n    print(schedule.id, schedule.next)` },
  };
}

/** Return the request that reads an event or a schedule. `kind`: events or schedules. */
export function reads(ctx, kind, id) {
  const name = kind === "events" ? "client.get" : "client.schedules.get";
  return { method: "GET", path: `v1/${kind}/${enc(id)}`, tenant: tenantOf(ctx), run: { words: `${kind} get`, id, python: () => `print(${name}(${pythonText(id)}))` } };
}

const KINDS = { curl: ["curl", curl], python: ["Python", inPython], command: ["Command", command] };
/** Return a request as text, or `{missing}` with the reason why it cannot be. */
export const textOf = (kind, request) => KINDS[kind][1](request);

let kind = "curl"; // what was chosen last on this page

/** Create a closed part with requests as text. `requests`: names and functions that return a request; one that throws NotJson has none yet. Return the part and `update`. */
export function copyAs(requests) {
  const shown = el("pre", { tabIndex: 0, role: "region", "aria-label": "Text to copy" });
  // Beside the button: what is behind a dialog is not read to anybody.
  const about = el("p", { class: "about", role: "status" });
  const names = Object.keys(requests);
  let which = names[0];
  const button = el("button", { type: "button", onclick: async () => (about.textContent = await copyText(shown.textContent, shown)) }, "Copy");
  const choice = el("select", { "aria-label": "Request" }, names.map((name) => el("option", { value: name }, name)));
  choice.addEventListener("change", () => {
    which = choice.value;
    update();
  });
  const kinds = Object.entries(KINDS).map(([name, [title]]) => el("button", { type: "button", "data-kind": name, onclick: () => {
    kind = name;
    update();
  } }, title));
  const root = el("details", { class: "copy", ontoggle: () => update() }, el("summary", {}, "Copy as curl, Python, command"),
    el("div", { class: "actions" }, names.length > 1 ? choice : null, el("div", { class: "kinds", role: "group", "aria-label": "Copy as" }, kinds), button), shown, about);

  function update() {
    if (!root.open) return;
    for (const each of kinds) each.setAttribute("aria-pressed", String(each.dataset.kind === kind));
    const request = requests[which]();
    const text = request.missing ? request : textOf(kind, request);
    const missing = text.missing ?? "";
    shown.hidden = button.hidden = Boolean(missing);
    shown.textContent = missing ? "" : text;
    const next = missing || `Set TOCSIN_KEY to a key first.${kind === "python" ? " Needs Tocsin's wheel." : kind === "command" ? " Needs Tocsin's wheel with the extra cli." : ""}`;
    if (about.textContent !== next) about.textContent = next;
  }
  return { root, update };
}
