// The page: who looks, at what, and which panels there are.

import { Refused, all, call, key } from "./api.js";
import { byId, el, plural, say } from "./dom.js";
import { dead } from "./dead.js";
import { due, late, now } from "./events.js";
import { health } from "./health.js";
import { leases } from "./leases.js";
import { maintenance } from "./maintenance.js";
import { Panel } from "./panel.js";
import { turns } from "./turns.js";

const PANELS = [now, due, late, dead, leases, turns, maintenance, health];
const NEW_NAMES = 60_000; // how often tenants and fleets are asked for

const asked = new URLSearchParams(location.search);
const ctx = {
  tenant: asked.get("tenant"), fleet: asked.get("fleet"), range: 60, admin: false, live: true, kept: new Map(),
  get query() {
    return this.tenant ? { tenant: this.tenant } : {};
  },
  /** What several panels ask for is asked once. */
  once(name, ask) {
    const known = this.kept.get(name);
    if (known && performance.now() - known.at < 2000) return known.answer;
    const answer = ask();
    this.kept.set(name, { at: performance.now(), answer });
    return answer;
  },
};
let panels = [];
let timer = null;

// -- who looks

const explained = (error) => {
  if (error.status === 401) return "This is not a valid key. Perhaps it was revoked, or a part of it is missing. Keys are made with POST /api/v1/tenants/{tenant}/keys.";
  if (error.status === 404 && ctx.tenant) return `There is no tenant ${ctx.tenant}.`;
  if (error.status === 403) return `The key is valid, but it may not do this: ${error.detail}.`;
  return `${error.title}. ${error.detail}`;
};

/** Whether the key opens anything; an admin's leads to the tenants. Throws `Refused`. */
async function admit(token) {
  try {
    await call("GET", "v1/stats", { query: ctx.query, token });
    ctx.admin = Boolean(ctx.tenant);
  } catch (error) {
    if (error.errors?.some((each) => each.pointer === "?tenant") && !ctx.tenant) {
      ctx.admin = true;
      return;
    }
    // A key without the scope of events may see fleets.
    if (!(error.status === 403 && error.body?.type?.endsWith("/missing-scope"))) throw error;
    ctx.admin = false;
  }
}

async function enter(token) {
  if (!/^[A-Za-z0-9._~+/-]{8,200}=*$/.test(token)) throw new Refused(401, "Not a key", "");
  await admit(token);
  key.set(token);
  byId("gate").hidden = true;
  byId("controls").hidden = false;
  byId("panels").hidden = false;
  panels = PANELS.map((spec) => new Panel(spec, ctx));
  byId("panels").replaceChildren(...panels.map((panel) => panel.root));
  await names();
  beat();
}

function leave(why = "") {
  key.forget();
  clearTimeout(timer);
  panels.forEach((panel) => panel.end());
  panels = [];
  byId("panels").replaceChildren();
  byId("panels").hidden = true;
  byId("controls").hidden = true;
  byId("details").close();
  byId("gate").hidden = false;
  refused(why);
  byId("key").value = "";
  byId("key").focus();
}

function refused(text) {
  byId("refused").textContent = text;
  byId("refused").hidden = !text;
  byId("key").setAttribute("aria-invalid", String(Boolean(text)));
}

byId("signin").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = byId("signin").querySelector("button");
  button.disabled = true;
  refused("");
  try {
    await enter(byId("key").value.trim());
    byId("key").value = "";
    byId("panels").focus({ preventScroll: true });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    refused(explained(error));
    byId("key").select();
  } finally {
    button.disabled = false;
  }
});
byId("leave").addEventListener("click", () => leave());

// -- at what

let named = 0;

function choose(id, values, chosen) {
  const select = byId(id);
  select.replaceChildren(...values.map((value) => el("option", { value, selected: value === chosen }, value)));
  select.closest("label").hidden = !values.length;
}

async function listed(path, query) {
  try {
    return (await all(path, query)).items.map((each) => each.name);
  } catch (error) {
    if (error instanceof Refused && error.status !== 401) return [];
    throw error;
  }
}

/** The tenants and fleets there are. */
async function names() {
  named = performance.now();
  if (ctx.admin) {
    const tenants = (await all("v1/tenants", {})).items.map((each) => each.name);
    ctx.tenant = tenants.includes(ctx.tenant) ? ctx.tenant : tenants.includes("demo") ? "demo" : tenants[0];
    choose("tenant", tenants, ctx.tenant);
  } else choose("tenant", [], "");
  const fleets = ctx.admin && !ctx.tenant ? [] : await listed("v1/fleets", ctx.query);
  ctx.fleet = fleets.includes(ctx.fleet) ? ctx.fleet : fleets[0] ?? null;
  choose("fleet", fleets, ctx.fleet);
}

async function changed() {
  ctx.kept.clear();
  panels.forEach((panel) => panel.reset());
  beat();
}
byId("tenant").addEventListener("change", async () => {
  ctx.tenant = byId("tenant").value;
  ctx.fleet = null;
  panels.forEach((panel) => panel.reset());
  await names();
  changed();
});
byId("fleet").addEventListener("change", () => {
  ctx.fleet = byId("fleet").value;
  changed();
});
byId("range").addEventListener("change", () => {
  ctx.range = Number(byId("range").value);
  changed();
});
byId("live").addEventListener("click", () => {
  ctx.live = !ctx.live;
  byId("live").setAttribute("aria-pressed", String(ctx.live));
  say(ctx.live ? "The panels follow the service." : "The panels stand still.");
  if (ctx.live) beat();
});

// -- when

async function beat() {
  clearTimeout(timer);
  if (!key.get()) return;
  try {
    if (performance.now() - named > NEW_NAMES) await names();
    await Promise.all(panels.map((panel) => panel.turn()));
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return leave("The key is no longer valid.");
    if (!(error instanceof Refused)) throw error;
  }
  if (ctx.live && key.get()) timer = setTimeout(() => (document.hidden ? null : beat()), 1000);
}
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && ctx.live) beat();
});

const kept = key.get();
if (kept) enter(kept).catch((error) => leave(error instanceof Refused ? explained(error) : String(error)));
else leave();
document.documentElement.dataset.ready = plural(PANELS.length, "panel");
