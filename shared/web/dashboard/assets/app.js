// The page: sign-in, the views, the choice of tenant and fleet, and the panels.

import { Refused, all, call, enc, key, whenLost } from "./api.js";
import { byId, el, plural, say, sentence } from "./dom.js";
import { audit } from "./audit.js";
import { channels } from "./channels.js";
import { dead } from "./dead.js";
import { showEvent } from "./event.js";
import { due, late, now } from "./events.js";
import { fleets } from "./fleets.js";
import { health } from "./health.js";
import { jobs } from "./jobs.js";
import { leases } from "./leases.js";
import { locks } from "./locks.js";
import { maintenance } from "./maintenance.js";
import { Panel } from "./panel.js";
import * as reach from "./reach.js";
import { schedules } from "./schedules.js";
import { search } from "./search.js";
import { tenants } from "./tenants.js";
import { turns } from "./turns.js";

const VIEWS = { overview: "Overview", events: "Events", schedules: "Schedules", channels: "Channels", tenants: "Tenants", audit: "Audit" };
const PANELS = [now, fleets, due, late, dead, leases, turns, maintenance, locks, health, jobs, search, schedules, channels, tenants, audit];
const NEW_NAMES = 60_000; // ms between loads of the names of tenants and fleets
const AGAIN = 5000; // ms until names, or a stored key, are tried again after a failure

const asked = new URLSearchParams(location.search);
const ctx = {
  tenant: asked.get("tenant"), fleet: asked.get("fleet"), view: "overview", range: 60, scopes: new Set(), live: true, unsure: false, kept: new Map(),
  get query() {
    return this.tenant ? { tenant: this.tenant } : {};
  },
  get admin() {
    return this.scopes.has("admin");
  },
  /** Return the page as a dialog sees it: with the tenant and the fleet for which it was opened, also after the page has turned to others. */
  pinned() {
    return Object.create(this, { tenant: { value: this.tenant }, fleet: { value: this.fleet }, kept: { value: new Map() } });
  },
  /** Return true if the key permits calls of this scope that change something. */
  may(scope) {
    return this.admin || this.scopes.has(scope);
  },
  /** Return true if the key permits calls of this scope that only read. */
  reads(scope) {
    return this.may(scope) || (scope !== "admin" && this.scopes.has("read"));
  },
  /** Show another fleet in the panels of fleets. */
  pick(name) {
    ctx.fleet = name;
    byId("fleet").value = name;
    changed();
    byId("panel-leases").scrollIntoView({ block: "start" });
  },
  /** Show the overview of another tenant. */
  visit(name) {
    show("overview");
    turnTo(name);
    byId("views").querySelector("[aria-current]").focus();
  },
  /** Load all panels again, because something was changed on the page: their figures stay in agreement. */
  acted() {
    ctx.kept.clear();
    panels.forEach((panel) => panel.soon());
    look();
  },
  /** Show a view, with what its panels are to look for. */
  open(view, wanted) {
    Object.assign(ctx, wanted);
    show(view);
    byId("views").querySelector("[aria-current]").focus();
    panels.forEach((panel) => panel.spec.view === view && panel.reset());
    look();
  },
  /** Share a call between panels: repeat it only `age` ms after its answer, or when `of` has changed. */
  once(name, ask, { age = 2000, of = "" } = {}) {
    const known = this.kept.get(name);
    if (known && known.of === of && (known.at === null || performance.now() - known.at < age)) return known.answer;
    const made = { at: null, of, answer: ask() };
    this.kept.set(name, made);
    made.answer.then(
      () => (made.at = performance.now()),
      // A failure is not stored.
      () => this.kept.get(name) === made && this.kept.delete(name),
    );
    return made.answer;
  },
};
let panels = [];
let retry = null;
let visit = 0;
let wanted = asked.get("event"); // the event that the address names

// -- sign-in

const expired = (detail) => `${detail.split(". ")[0]}. Ask your administrator for another key.`;
const explained = (error) => {
  if (error.status === 401 && /expired/.test(error.detail)) return expired(error.detail);
  if (error.status === 401) return "This is not a valid key. It may be incomplete or revoked. Check the key, or ask your administrator for one.";
  if (error.status === 403) return sentence(`The key is valid, but does not permit this: ${error.detail}`);
  return sentence(`${error.title}${error.detail ? `: ${error.detail}` : ""}`);
};

const wellFormed = (token) => /^[A-Za-z0-9._~+/-]{8,200}=*$/.test(token);

async function enter(token) {
  if (!wellFormed(token)) throw new Refused(401, "Not a key", "");
  const mine = ++visit;
  const found = await call("GET", "v1/key", { token });
  // Another key was entered meanwhile.
  if (mine !== visit) return;
  ctx.scopes = new Set(found.scopes);
  // The page's address may name the tenant of another key.
  ctx.tenant = ctx.admin ? ctx.tenant ?? found.tenant ?? null : null;
  key.set(token);
  byId("gate").hidden = true;
  for (const id of ["controls", "panels", "skip", "views"]) byId(id).hidden = false;
  const made = PANELS.filter((spec) => !spec.needs || ctx.reads(spec.needs)).map((spec) => new Panel(spec, ctx));
  byId("panels").replaceChildren(...Object.keys(VIEWS).map((view) => el("div", { class: "view", "data-view": view }, view === "overview" && lacking(), made.filter((panel) => panel.spec.view === view).map((panel) => panel.root))));
  show(named(), true);
  // The panels load when the tenant and the fleet are known.
  await names();
  if (mine !== visit) return;
  panels = made;
  look();
  // Once: whoever closes the event wants to see the page.
  if (wanted && ctx.reads("events")) showEvent(ctx, wanted, ctx.acted);
  wanted = null;
}

/** Return a note on panels that are left out, because the key may not read their data. */
function lacking() {
  const lacks = ["events", "fleets"].filter((scope) => !ctx.reads(scope));
  return lacks.length ? el("p", { class: "note lacks" }, `The key lacks the scope ${lacks.join(" and ")}: the panels of ${lacks.join(" and ")} are left out. Use a key with ${lacks.length > 1 ? "these scopes" : "this scope"} to see them.`) : null;
}

/** Sign in with the stored key of this tab; while the service does not answer, try again. */
async function reenter() {
  const kept = key.get();
  if (!kept) return;
  try {
    await enter(kept);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401 || error.status === 403) return leave(explained(error));
    byId("gate").hidden = false;
    refused(`${explained(error)} The key is stored, and the page tries again automatically.`);
    retry = setTimeout(reenter, Math.max(AGAIN, error.after));
  }
}

function leave(why = "") {
  visit += 1;
  key.forget();
  clearTimeout(retry);
  panels.forEach((panel) => panel.end());
  panels = [];
  ctx.kept.clear();
  reach.forget();
  byId("panels").replaceChildren();
  for (const id of ["controls", "panels", "skip", "views"]) byId(id).hidden = true;
  byId("details").close();
  byId("gate").hidden = false;
  refused(why);
  byId("key").value = "";
  byId("key").focus();
  nameDemo();
}
whenLost((why) => leave(/expired/.test(why) ? expired(why) : "The key is no longer valid: it may have been revoked. Ask your administrator for another."));

const DEMO = "local-demo-key"; // the public key of the tenant `demo`, which a service on emulated storage has

/** On this machine's own address, name the demo key, if the service accepts it. It is sent to no other address. */
async function nameDemo() {
  if (!["localhost", "127.0.0.1", "[::1]"].includes(location.hostname) || byId("local").hasChildNodes()) return;
  try {
    const found = await call("GET", "v1/key", { token: DEMO });
    if (byId("local").hasChildNodes()) return;
    const fill = el("button", { type: "button", onclick: () => { byId("key").value = DEMO; byId("key").focus(); } }, "Fill it in");
    byId("local").append("This is a local service: the key ", el("code", {}, DEMO), ` shows its tenant ${found.tenant}. `, fill);
    byId("local").hidden = false;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
}

function refused(text) {
  byId("refused").textContent = text;
  byId("refused").hidden = !text;
  byId("key").setAttribute("aria-invalid", String(Boolean(text)));
}

byId("signin").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = byId("signin").querySelector("[type=submit]");
  button.disabled = true;
  clearTimeout(retry);
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

// -- views

/** Return true if the key may see something of a view. */
const seen = (view) => PANELS.some((spec) => spec.view === view && (!spec.needs || ctx.reads(spec.needs)));

/** Show a view. `first`: it is not entered into the history of the tab. */
function show(view, first = false) {
  ctx.view = view;
  const links = byId("views");
  const names = Object.keys(VIEWS).filter(seen);
  // An unchanged list is not replaced, because a link may have the focus.
  if ([...links.children].map((each) => each.dataset.view).join() !== names.join()) links.replaceChildren(...names.map((name) => el("a", { "data-view": name, onclick: (event) => follow(event, name) }, VIEWS[name])));
  for (const each of links.children) {
    each.href = address(each.dataset.view);
    if (each.dataset.view === view) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  for (const each of byId("panels").querySelectorAll(".view")) each.hidden = each.dataset.view !== view;
  for (const id of ["fleet", "range"]) byId(id).closest("label").classList.toggle("elsewhere", view !== "overview");
  if (!first) history.pushState(null, "", address(view));
}

function follow(event, view) {
  // A new tab or window is the browser's affair.
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  show(view);
  byId("views").querySelector("[aria-current]").focus();
  look();
}
addEventListener("popstate", () => {
  if (!panels.length) return;
  show(named(), true);
  look();
});

/** Return the view that the address names, if the key may see it. */
function named() {
  const view = new URLSearchParams(location.search).get("view") ?? "";
  return Object.hasOwn(VIEWS, view) && seen(view) ? view : "overview";
}

/** Return the address of a view, so that it can be reloaded and shared. */
function address(view) {
  const chosen = new URLSearchParams(Object.entries({ tenant: ctx.tenant, fleet: ctx.fleet, view: view === "overview" ? null : view }).filter(([, value]) => value));
  return `${location.pathname}${chosen.size ? `?${chosen}` : ""}`;
}

// -- tenant and fleet

let namesAt = 0; // time of the next load of names

/** Fill a choice with names. `more`: a text in its place for the names that are left out. */
function choose(id, values, chosen, more = "") {
  const select = byId(id);
  // An unchanged list is not replaced, because it may be open.
  const listed = [...values, ...(more ? [more] : [])];
  if ([...select.options].map((each) => each.value).join("\n") !== listed.join("\n")) select.replaceChildren(...listed.map((value) => el("option", { value, disabled: value === more }, value)));
  if (chosen) select.value = chosen;
  select.closest("label").hidden = !values.length;
}

/** Return the names of the first tenants, with `more` if there are others; null without an answer. `chosen` is among them if it exists. */
async function tenantNames(chosen) {
  try {
    const { items, more } = await all("v1/tenants", {});
    const found = items.map((each) => each.name);
    if (more && chosen && !found.includes(chosen) && (await exists(chosen))) found.push(chosen);
    return { found, more };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return error.status === 403 ? { found: [], more: false } : null;
  }
}

async function exists(tenant) {
  try {
    await call("GET", `v1/tenants/${enc(tenant)}`);
    return true;
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404) throw error;
    return false;
  }
}

/** Return the names of the fleets, read without a read of each fleet: [] without the scope, null without an answer. */
async function fleetNames() {
  try {
    return (await call("GET", "v1/fleet-overview", { query: { ...ctx.query, names: "true", limit: 1 } })).names;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return error.status === 403 ? [] : null;
  }
}

/** Load the names of tenants and fleets. The choice stays while it exists, and while the service does not answer. */
async function names() {
  const mine = visit;
  namesAt = performance.now() + NEW_NAMES;
  const before = [ctx.tenant, ctx.fleet];
  const known = ctx.admin ? await tenantNames(ctx.tenant) : { found: [], more: false };
  // The key was forgotten meanwhile.
  if (mine !== visit) return;
  const tenants = known?.found;
  // Another tenant may have been chosen meanwhile, which is not among the first.
  if (known?.more && before[0] !== ctx.tenant && !tenants.includes(ctx.tenant)) tenants.push(ctx.tenant);
  if (tenants && ctx.admin) ctx.tenant = tenants.includes(ctx.tenant) ? ctx.tenant : tenants.includes("demo") ? "demo" : tenants[0] ?? null;
  const tenant = ctx.tenant;
  const fleets = !ctx.reads("fleets") || (ctx.admin && !tenant) ? [] : await fleetNames();
  // Another tenant may have been chosen meanwhile.
  if (tenant !== ctx.tenant || mine !== visit) return;
  if (tenants) choose("tenant", tenants, ctx.tenant, known.more ? "more: see the tab Tenants" : "");
  ctx.unsure = fleets === null;
  if (fleets) {
    ctx.fleet = fleets.includes(ctx.fleet) ? ctx.fleet : fleets[0] ?? null;
    choose("fleet", fleets, ctx.fleet);
  }
  if (!tenants || !fleets) namesAt = performance.now() + AGAIN;
  if (before[0] !== ctx.tenant || before[1] !== ctx.fleet) changed();
}

/** Show another tenant or fleet, and put both into the address, so that it can be reloaded and shared. */
function changed() {
  history.replaceState(null, "", address(ctx.view));
  show(ctx.view, true);
  ctx.kept.clear();
  panels.forEach((panel) => panel.reset());
  look();
}
/** Show another tenant. */
function turnTo(name) {
  const select = byId("tenant");
  if (![...select.options].some((each) => each.value === name)) select.append(el("option", { value: name }, name));
  select.value = ctx.tenant = name;
  ctx.fleet = null;
  choose("fleet", [], null);
  changed();
  names();
}
byId("tenant").addEventListener("change", () => turnTo(byId("tenant").value));
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
  say(ctx.live ? "The panels update automatically." : "The panels are paused.");
  tick();
});
byId("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;

// -- updates

/** Let each panel load if it is time; no panel waits for another. */
function look() {
  if (performance.now() > namesAt) names();
  for (const panel of panels) panel.turn();
}

function tick() {
  if (!panels.length || !ctx.live || document.hidden) return;
  if (reach.isAway()) reach.retry();
  else look();
}
setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);
function wake() {
  panels.forEach((panel) => panel.wake());
  tick();
}
reach.whenBack(wake);
reach.whenAway(() => panels.forEach((panel) => panel.lose()));
addEventListener("online", wake);

if (key.get()) reenter();
else leave();
document.documentElement.dataset.ready = plural(PANELS.length, "panel");
