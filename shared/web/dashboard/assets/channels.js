// The view of channels: where each delivers to, what blocks it, and what its receiver answered last; pause, resume, rotate, send a test.

import { Refused, all, call, enc, key, newId, present, repeatable } from "./api.js";
import { badge, byId, confirm, count, cut, el, facts, field, folded, isShown, moment, open, own, plural, problem, readFirst, span, table, tell } from "./dom.js";
import { copyText } from "./clipboard.js";
import { showEvent } from "./event.js";
import { statsOf } from "./events.js";
import { sendTest } from "./sendtest.js";

const STEP = 100; // channels shown at first, and added by each press of the button
const FAILED = 100; // most dead events that are searched for failures, and most retried ones
const ANSWERS = 5; // answers of each kind in the dialog of a channel
const DAY = 86_400_000;
const HOUR = 3_600_000;
const BREAKER = { open: "circuit breaker open", "half-open": "circuit breaker half-open" };
const STATES = { ok: "ok", paused: "paused", "breaker-open": BREAKER.open, "breaker-half-open": BREAKER["half-open"], removed: "deleted" };
const SIGNED = ["http", "fleet"];
const iso = (ms) => new Date(ms).toISOString();

/** Return the scheme, host and port of an address: its path and query may be secrets. */
function origin(address) {
  try {
    return new URL(address).origin;
  } catch {
    return "an unreadable address";
  }
}

/** Return where a channel delivers to. */
function target({ type, ...channel }) {
  switch (type) {
    case "http": return origin(channel.url);
    case "fleet": return `fleet ${channel.fleet}`;
    case "queue": return `queue ${channel.queue}${channel.account ? ` of account ${channel.account}` : ""}`;
    case "eventgrid": return origin(channel.endpoint);
    case "kafka": return `topic ${channel.topic} at ${channel.servers}`;
    case "servicebus": return `${channel.entity} at ${channel.namespace}`;
    default: return type;
  }
}

/** Return the limits of a channel in words; null without limits. */
function limits({ limits: found, per_key: key }) {
  const per = (each) => [each?.deliveries_per_second && `${count(each.deliveries_per_second)}/s`, each?.concurrency && `${count(each.concurrency)} at once`, each?.ordered && "in order"].filter(Boolean).join(", ");
  return [per(found), per(key) && `each key: ${per(key)}`].filter(Boolean).join("; ") || null;
}

const isBlocked = ({ about, state }) => (about ? about.paused || about.flow.breaker !== "closed" : !["ok", "removed", "unknown"].includes(state));

/** Return a channel's state: what blocks it, since when and why. */
function state({ about, state: known }) {
  if (!about) return badge(STATES[known] ?? known, known === "ok" ? "good" : ["removed", "unknown"].includes(known) ? "" : "bad");
  if (about.paused) return [badge("paused", "bad"), " since ", moment(about.paused_at), about.reason ? [": ", el("bdi", { title: about.reason }, cut(about.reason, 120))] : ""];
  const { breaker, since, until, failures, error } = about.flow;
  if (breaker === "closed") return badge("ok", "good");
  return [badge(BREAKER[breaker] ?? breaker, "bad"), " since ", moment(since), `, ${plural(failures ?? 0, "failure")}`, error ? [": ", el("bdi", { title: error }, cut(error, 120))] : "",
    breaker === "open" && until ? [". Next try at ", moment(until)] : ""];
}

/** Return the last failed attempt of each channel, with its event. */
async function failuresOf(ctx, stats) {
  if (!stats.dead && !stats.retrying) return new Map();
  return ctx.once("channel failures", async () => {
    const when = { from: iso(present() - DAY), to: iso(present() + 60_000) };
    const lists = await Promise.all([
      stats.dead ? all("v1/dead-letters", { ...ctx.query, ...when }, undefined, FAILED, 3) : { items: [] },
      stats.retrying ? all("v1/events", { ...ctx.query, ...when, state: "retrying" }, undefined, FAILED, 3) : { items: [] },
    ]);
    const found = new Map();
    for (const event of lists.flatMap((list) => list.items)) {
      const attempt = event.attempts?.at(-1);
      if (attempt && !(found.get(event.channel)?.attempt.at > attempt.at)) found.set(event.channel, { event, attempt });
    }
    return found;
  }, { age: 20_000, of: `${stats.dead} ${stats.retrying}` });
}

const outcome = (attempt) => {
  const error = attempt.error ?? "";
  return (attempt.status && !error.includes(attempt.status) ? `${attempt.status} ${error}` : error).trim() || attempt.outcome;
};

// -- the actions

const path = (ctx, name) => `v1/tenants/${enc(ctx.tenant)}/channels/${enc(name)}`;
const waiting = ({ figures }) => (figures?.held ? ` ${plural(figures.held, "event")} ${figures.held === 1 ? "is" : "are"} waiting now.` : "");

// A dialog acts on the tenant for which it was opened: the page may turn to another one when a tenant is deleted.

function pause(ctx, channel) {
  const where = path(ctx, channel.name);
  const reason = field("Reason", { required: true, maxLength: 200, placeholder: "The receiver is being moved" });
  confirm(`Pause ${channel.name}`, `Deliveries stop within a second. Events wait, and are delivered once you resume the channel.${waiting(channel)}`, "Pause the channel", async () => {
    await call("POST", `${where}/pause`, { body: { reason: reason.input.value.trim() } });
    tell(`${channel.name} is paused.`);
    ctx.acted();
  }, reason.box);
}

function resume(ctx, channel) {
  const [paused, where] = [channel.about.paused, path(ctx, channel.name)];
  confirm(paused ? `Resume ${channel.name}` : `Close the circuit breaker of ${channel.name}`,
    `${paused ? "Deliveries start again at once." : "The service stops waiting for the next try and delivers at once. The circuit breaker opens again if the receiver still fails."}${waiting(channel)}`,
    paused ? "Resume the channel" : "Close it", async () => {
      await call("POST", `${where}/resume`);
      tell(paused ? `${channel.name} is resumed.` : `The circuit breaker of ${channel.name} is closed.`);
      ctx.acted();
    });
}

const rotations = new Map(); // the ids of rotations without an answer, by the path of their channel

/** Ask before a rotation, with the state of the secret as it is now. */
function rotate(ctx, channel) {
  const where = path(ctx, channel.name);
  readFirst(channel.name, where, {}, ({ data }) => askRotation(ctx, where, data));
}

function askRotation(ctx, where, { name, rotated_at: last, previous_until: ends }) {
  const mine = key.get();
  // Another id would be another rotation, which ends the secret that the receiver has.
  const lost = rotations.get(where);
  const id = lost ?? newId();
  const about = lost ? ["The answer to the last attempt was lost. If it has created a secret, that one is shown now, and no other is created."]
    : ["The channel gets a new signing secret. Deliveries are also signed with the present one for 24 hours: give the new one to the receiver within that time.", last ? [" The last rotation was at ", moment(last), "."] : "",
      Date.parse(ends) > present() ? [" The secret before the present one would work until ", moment(ends), ": this rotation ends it at once."] : ""];
  confirm(`Rotate the secret of ${name}`, about, lost ? "Show the new secret" : "Create a new secret", async () => {
    rotations.set(where, id);
    let made;
    try {
      made = await repeatable(call("POST", `${where}/secret/rotate`, { body: { id } }));
    } catch (error) {
      if (error instanceof Refused && !error.unsure) rotations.delete(where);
      throw error;
    }
    rotations.delete(where);
    ctx.acted();
    // Another dialog that was opened meanwhile is not replaced; the secret is shown after it.
    const show = () => key.get() === mine && showSecret(name, made.secret, made.previous_until);
    if (isShown(form) || !byId("details").open) show();
    else byId("details").addEventListener("close", show, { once: true });
  });
  const form = byId("details").querySelector("form");
}

/** Show a new secret. It leaves the page with the dialog. */
function showSecret(name, secret, until) {
  const shown = el("code", { class: "secret", tabIndex: 0 }, secret);
  const note = el("p", { class: "note done", role: "status" }, "The secret is created. It is shown only here: copy it now.");
  const dialog = open(`New secret of ${name}`, note, el("p", {}, shown),
    el("p", { class: "actions" }, el("button", { type: "button", class: "primary", onclick: async () => (note.textContent = await copyText(secret, shown)) }, "Copy the secret")),
    until ? el("p", { class: "about" }, "Deliveries are signed with the former secret too until ", moment(until), ".") : "");
  dialog.querySelector("button.primary").focus();
  dialog.addEventListener("close", () => shown.remove(), { once: true });
}

/** Return buttons for the actions that the key permits on a channel. `more`: with those that only its dialog has. */
function acts(ctx, channel, more = false) {
  // One of these buttons takes the place of the other, and the focus stays on it.
  const kind = (text) => (["Pause", "Resume"].includes(text) ? "turn" : text.replace(" ", "-"));
  const button = (text, doing) => el("button", { type: "button", "data-keep": `${kind(text)} ${channel.name}`, "aria-label": `${text} ${channel.name}`, onclick: () => doing(ctx, channel) }, text);
  const { about } = channel;
  const found = [];
  if (about && ctx.admin) found.push(about.paused ? button("Resume", resume) : button("Pause", pause));
  if (about && ctx.admin && !about.paused && about.flow.breaker !== "closed") found.push(button("Close breaker", resume));
  if (ctx.may("events") && channel.state !== "removed" && channel.name !== "*") found.push(button("Send test", () => sendTest(ctx, channel.name, isBlocked(channel))));
  if (more && about && ctx.admin && SIGNED.includes(about.type)) found.push(button("Rotate secret", rotate));
  return found;
}

/** Return a sentence about the actions that the key does not permit, and about a key that would; an empty text if it permits all. */
export function lacking(ctx) {
  const lost = [];
  if (!ctx.admin) lost.push("The key lacks the scope admin: it cannot see addresses and limits, nor pause, resume or rotate.");
  if (!ctx.may("events")) lost.push("It lacks the scope events: it cannot send a test.");
  return lost.length ? `${lost.join(" ")} Use a key with ${lost.length > 1 ? "these scopes" : "this scope"}.` : "";
}

// -- the dialog of a channel

/** Return the latest attempts at a channel's events, the newest first. */
async function answersOf(ctx, name) {
  const [from, hour, to] = [iso(present() - DAY), iso(present() - HOUR), iso(present() + 60_000)];
  const ask = (query, where = "v1/events") => call("GET", where, { query: { ...ctx.query, to, channel: name, limit: ANSWERS, ...query } });
  const lists = await Promise.all([ask({ from }, "v1/dead-letters"), ask({ from, state: "retrying" }), ask({ from: hour, state: "delivered" })]);
  return lists.flatMap((list) => list.items).filter((event) => event.attempts?.length).map((event) => ({ event, attempt: event.attempts.at(-1) }))
    .sort((one, other) => other.attempt.at.localeCompare(one.attempt.at)).slice(0, 2 * ANSWERS);
}

async function showChannel(ctx, channel) {
  ctx = ctx.pinned();
  const { name, about, figures } = channel;
  const answers = el("div", {}, el("p", { class: "note" }, "Loading …"));
  const find = (text, filters) => el("button", { type: "button", onclick: () => { byId("details").close(); ctx.open("events", { filters: { channel: name, ...filters } }); } }, text);
  open(own(name), el("p", { class: "actions" }, acts(ctx, channel, true), find("Its events", {}), figures?.dead ? find("Its dead events", { state: "dead" }) : "", figures?.held ? find("Its waiting events", { held: "true" }) : ""),
    lacking(ctx) ? el("p", { class: "about" }, lacking(ctx)) : "",
    facts([["state", state(channel)], ["delivers to", about && own(target(about))], ["type", about?.type], ["limits", about && own(limits(about) ?? "none")], ["timeout", about?.timeout],
      ["waiting", figures && count(figures.held)], ["delivered, 24 h", figures && count(figures.delivered)], ["dead, 24 h", figures && count(figures.dead)], ["late p99, 24 h", figures && span(figures.late_ms.p99)],
      ["secret", about && SIGNED.includes(about.type) && [about.rotated_at ? ["rotated ", moment(about.rotated_at)] : "never rotated", about.previous_until ? ["; the former one is valid until ", moment(about.previous_until)] : ""]],
      ["created", about && moment(about.created)]]),
    el("h3", {}, "Last answers"), answers);
  byId("details").classList.add("wide");
  try {
    const found = await answersOf(ctx, name);
    answers.replaceChildren(found.length ? table("Last answers", ["event", "at", "outcome", "answer", "took"], found.map(({ event, attempt }) => [
      el("button", { type: "button", class: "link", title: event.id, onclick: () => showEvent(ctx, event.id, ctx.acted) }, folded(event.id, 32)), moment(attempt.at),
      badge(attempt.outcome, attempt.outcome === "delivered" ? "good" : attempt.outcome === "final" ? "bad" : "warn"), el("bdi", { class: "why", title: outcome(attempt) }, cut(outcome(attempt), 90)), span(attempt.took_ms)]))
      : el("p", { class: "dim" }, "No delivery in the last hour, and no failure in the last day. Send a test to see an answer."));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    answers.replaceChildren(el("p", { class: "note wrong" }, problem(error)));
  }
}

export const channels = {
  id: "channels", title: "Channels", view: "channels", needs: "events", every: () => 10_000,
  still: (data) => JSON.stringify([data.rows, data.more, data.uncounted, [...data.failures].map(([name, { attempt }]) => [name, attempt.at])]),
  async load(ctx, signal) {
    const [stats, found] = await Promise.all([statsOf(ctx), ctx.admin && ctx.tenant ? all(`v1/tenants/${enc(ctx.tenant)}/channels`, {}, signal, (ctx.channelsShown ??= STEP)) : { items: [], more: false }]);
    const failures = await failuresOf(ctx, stats);
    signal.throwIfAborted();
    const rows = found.items.map((about) => ({ name: about.name, about, figures: stats.channels[about.name] }));
    const known = new Set(rows.map((each) => each.name));
    // Without the scope admin only the channels with figures are known, and a list that goes on may name them later.
    const others = new Set([...Object.keys(stats.channels), ...failures.keys()].filter((name) => name && !known.has(name)));
    if (!found.more) rows.push(...[...others].map((name) => ({ name, about: null, figures: stats.channels[name], state: stats.channels[name]?.state ?? "unknown" })));
    rows.sort((one, other) => isBlocked(other) - isBlocked(one) || one.name.localeCompare(other.name));
    // The service counts by channel once all events of a minute have ended.
    const uncounted = ["delivered", "dead"].map((name) => Math.max(0, stats[name] - Object.values(stats.channels).reduce((sum, each) => sum + each[name], 0)));
    return { rows, more: found.more, failures, uncounted };
  },
  empty: ({ rows }) => (rows.length ? null : "There are no channels yet. Create one: tocsin tenants channels put TENANT NAME --to https://…"),
  build(body, ctx, refresh) {
    const sum = el("p", { class: "sum" });
    const lacks = el("p", { class: "about" });
    const list = el("div", {});
    body.append(sum, lacks, list);

    function row(channel, failures) {
      const name = el("button", { type: "button", class: "link", "data-keep": `open ${channel.name}`, title: channel.name, onclick: () => showChannel(ctx, channel) }, channel.name === "*" ? "other channels" : channel.name);
      const failed = failures.get(channel.name);
      const { figures, about } = channel;
      return [channel.name === "*" ? "other channels" : name, about ? el("bdi", { class: "why" }, target(about)) : "–", state(channel), count(figures?.held ?? 0), count(figures?.delivered ?? 0), count(figures?.dead ?? 0), about ? limits(about) ?? "–" : "–",
        failed ? [el("bdi", { class: "why", title: outcome(failed.attempt) }, cut(outcome(failed.attempt), 60)), " at ", moment(failed.attempt.at)] : "–", el("span", { class: "actions" }, acts(ctx, channel))];
    }
    return {
      end() {
        ctx.channelsShown = STEP;
      },
      show({ rows, more, failures, uncounted: [delivered, dead] }) {
        const blocked = rows.filter(isBlocked).length;
        sum.replaceChildren(more ? `The first ${plural(rows.length, "channel")}. ` : `${plural(rows.length, "channel")}. `, blocked ? badge(`${count(blocked)} ${blocked === 1 ? "delivers" : "deliver"} nothing`, "bad") : badge("none is blocked", "good"),
          delivered || dead ? ` Not counted by channel yet, because their minutes have not finished: ${[delivered && `${count(delivered)} delivered`, dead && `${count(dead)} dead`].filter(Boolean).join(", ")}.` : "");
        lacks.textContent = lacking(ctx);
        lacks.hidden = !lacks.textContent;
        list.replaceChildren(table("Channels", ["channel", "delivers to", "state", "waiting", "delivered, 24 h", "dead, 24 h", "limits", "last failure", ""], rows.map((each) => row(each, failures))),
          more ? el("button", { type: "button", class: "further", "data-keep": "more", onclick: () => { ctx.channelsShown = rows.length + STEP; refresh(); } }, `Show ${STEP} more`) : "");
      },
    };
  },
};
