// The page: sign-in, the choice of tenant and fleet, and the panels.

import { Refused, all, call, key, whenLost } from "./api.js";
import { byId, el, plural, say, sentence } from "./dom.js";
import { audit } from "./audit.js";
import { dead } from "./dead.js";
import { due, late, now } from "./events.js";
import { fleets } from "./fleets.js";
import { health } from "./health.js";
import { leases } from "./leases.js";
import { maintenance } from "./maintenance.js";
import { Panel } from "./panel.js";
import { turns } from "./turns.js";

const PANELS = [now, fleets, due, late, dead, leases, turns, maintenance, health, audit];
const NEW_NAMES = 60_000; // ms between loads of the names of tenants and fleets
const AGAIN = 5000; // ms until names, or a stored key, are tried again after a failure

const asked = new URLSearchParams(location.search);
const ctx = {
  tenant: asked.get("tenant"), fleet: asked.get("fleet"), range: 60, admin: false, live: true, kept: new Map(), missing: "",
  get query() {
    return this.tenant ? { tenant: this.tenant } : {};
  },
  /** Show another fleet in the panels of fleets. */
  pick(name) {
    ctx.fleet = name;
    byId("fleet").value = name;
    changed();
    byId("panel-leases").scrollIntoView({ block: "start" });
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

// -- sign-in

const explained = (error) => {
  if (error.status === 401) return "This is not a valid key. It may be incomplete or revoked. Create a key with POST /api/v1/tenants/{tenant}/keys.";
  if (error.status === 403) return sentence(`The key is valid, but does not permit this: ${error.detail}`);
  return sentence(`${error.title}${error.detail ? `: ${error.detail}` : ""}`);
};

/** Check that the key is valid, and set `ctx.admin` for an admin key. Throws `Refused`. */
async function admit(token) {
  ctx.admin = false;
  try {
    await call("GET", "v1/stats", { query: ctx.query, token });
  } catch (error) {
    // The bootstrap admin key has no tenant, and only an admin key gets 404 for a tenant.
    if (error.code === "not-found" || error.errors?.some((each) => each.pointer === "?tenant")) {
      ctx.admin = true;
      return;
    }
    if (error.code === "not-your-tenant" && ctx.tenant) {
      // The page's address may name the tenant of another key.
      ctx.tenant = null;
      return admit(token);
    }
    // A key without the scope events may still show fleets.
    if (error.code !== "missing-scope") throw error;
  }
  if (!ctx.tenant) return;
  try {
    await call("GET", "v1/tenants", { query: { limit: 1 }, token });
    ctx.admin = true;
  } catch (error) {
    if (error.status !== 403) throw error;
    ctx.tenant = null;
  }
}

async function enter(token) {
  if (!/^[A-Za-z0-9._~+/-]{8,200}=*$/.test(token)) throw new Refused(401, "Not a key", "");
  const mine = ++visit;
  await admit(token);
  // Another key was entered meanwhile.
  if (mine !== visit) return;
  key.set(token);
  byId("gate").hidden = true;
  for (const id of ["controls", "panels", "skip"]) byId(id).hidden = false;
  const made = PANELS.filter((spec) => ctx.admin || !spec.admin).map((spec) => new Panel(spec, ctx));
  byId("panels").replaceChildren(...made.map((panel) => panel.root));
  // The panels load when the tenant and the fleet are known.
  await names();
  if (mine !== visit) return;
  panels = made;
  look();
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
  byId("panels").replaceChildren();
  for (const id of ["controls", "panels", "skip"]) byId(id).hidden = true;
  byId("details").close();
  byId("gate").hidden = false;
  refused(why);
  byId("key").value = "";
  byId("key").focus();
}
whenLost(() => leave("The key is no longer valid. It may have been revoked."));

function refused(text) {
  byId("refused").textContent = text;
  byId("refused").hidden = !text;
  byId("key").setAttribute("aria-invalid", String(Boolean(text)));
}

byId("signin").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = byId("signin").querySelector("button");
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

// -- tenant and fleet

let named = 0; // time of the next load of names

function choose(id, values, chosen) {
  const select = byId(id);
  // An unchanged list is not replaced, because it may be open.
  if ([...select.options].map((each) => each.value).join("\n") !== values.join("\n")) select.replaceChildren(...values.map((value) => el("option", { value }, value)));
  if (chosen) select.value = chosen;
  select.closest("label").hidden = !values.length;
}

/** Return the names of a list: [] without the scope (see `ctx.missing`), null without an answer. */
async function listed(path, query) {
  try {
    return (await all(path, query)).items.map((each) => each.name);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status !== 403) return null;
    ctx.missing = error.detail;
    return [];
  }
}

/** Return the names of the fleets, as `listed` does; they are read without a read of each fleet. */
async function fleetNames() {
  try {
    return (await call("GET", "v1/fleet-overview", { query: { ...ctx.query, names: "true", limit: 1 } })).names;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status !== 403) return null;
    ctx.missing = error.detail;
    return [];
  }
}

/** Load the names of tenants and fleets. The choice stays while it exists, and while the service does not answer. */
async function names() {
  const mine = visit;
  named = performance.now() + NEW_NAMES;
  const before = [ctx.tenant, ctx.fleet];
  const tenants = ctx.admin ? await listed("v1/tenants", {}) : [];
  // The key was forgotten meanwhile.
  if (mine !== visit) return;
  if (tenants && ctx.admin) ctx.tenant = tenants.includes(ctx.tenant) ? ctx.tenant : tenants.includes("demo") ? "demo" : tenants[0] ?? null;
  const tenant = ctx.tenant;
  ctx.missing = "";
  const fleets = ctx.admin && !tenant ? [] : await fleetNames();
  // Another tenant may have been chosen meanwhile.
  if (tenant !== ctx.tenant || mine !== visit) return;
  if (tenants) choose("tenant", tenants, ctx.tenant);
  if (fleets) {
    ctx.fleet = fleets.includes(ctx.fleet) ? ctx.fleet : fleets[0] ?? null;
    choose("fleet", fleets, ctx.fleet);
  }
  if (!tenants || !fleets) named = performance.now() + AGAIN;
  if (before[0] !== ctx.tenant || before[1] !== ctx.fleet) changed();
}

/** Show another tenant or fleet, and put both into the address, so that it can be reloaded and shared. */
function changed() {
  const chosen = new URLSearchParams(Object.entries({ tenant: ctx.tenant, fleet: ctx.fleet }).filter(([, value]) => value));
  history.replaceState(null, "", `${location.pathname}${chosen.size ? `?${chosen}` : ""}`);
  ctx.kept.clear();
  panels.forEach((panel) => panel.reset());
  look();
}
byId("tenant").addEventListener("change", () => {
  ctx.tenant = byId("tenant").value;
  ctx.fleet = null;
  choose("fleet", [], null);
  changed();
  names();
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
  say(ctx.live ? "The panels update automatically." : "The panels are paused.");
  tick();
});
byId("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;

// -- updates

/** Let each panel load if it is time; no panel waits for another. */
function look() {
  if (performance.now() > named) names();
  for (const panel of panels) panel.turn();
}

function tick() {
  if (panels.length && ctx.live && !document.hidden) look();
}
setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);
addEventListener("online", () => {
  panels.forEach((panel) => panel.wake());
  tick();
});

if (key.get()) reenter();
else leave();
document.documentElement.dataset.ready = plural(PANELS.length, "panel");
