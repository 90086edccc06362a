// The page: who looks, at what, and which panels there are.

import { Refused, all, call, key, whenLost } from "./api.js";
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
const AGAIN = 5000; // until they are, after a failure; and until a kept key is tried again

const asked = new URLSearchParams(location.search);
const ctx = {
  tenant: asked.get("tenant"), fleet: asked.get("fleet"), range: 60, admin: false, live: true, kept: new Map(), barred: "",
  get query() {
    return this.tenant ? { tenant: this.tenant } : {};
  },
  /** What several panels ask for is asked once, and again `age` ms after its answer, or when `of` is another. */
  once(name, ask, { age = 2000, of = "" } = {}) {
    const known = this.kept.get(name);
    if (known && known.of === of && (known.at === null || performance.now() - known.at < age)) return known.answer;
    const made = { at: null, of, answer: ask() };
    this.kept.set(name, made);
    made.answer.then(
      () => (made.at = performance.now()),
      // A failure is not kept.
      () => this.kept.get(name) === made && this.kept.delete(name),
    );
    return made.answer;
  },
};
let panels = [];
let retry = null;
let visit = 0;

// -- who looks

const explained = (error) => {
  if (error.status === 401) return "This is not a valid key. Perhaps it was revoked, or a part of it is missing. Keys are made with POST /api/v1/tenants/{tenant}/keys.";
  if (error.status === 403) return `The key is valid, but it may not do this: ${error.detail}.`;
  return `${error.title}${error.detail ? `: ${error.detail}` : ""}.`;
};

/** Whether the key opens anything; an admin's leads to the tenants. Throws `Refused`. */
async function admit(token) {
  ctx.admin = false;
  try {
    await call("GET", "v1/stats", { query: ctx.query, token });
  } catch (error) {
    // The administrator's own key has no tenant; and only an admin is told that a tenant is not there.
    if (error.code === "not-found" || error.errors?.some((each) => each.pointer === "?tenant")) {
      ctx.admin = true;
      return;
    }
    if (error.code === "not-your-tenant" && ctx.tenant) {
      // The address may name what another key is for.
      ctx.tenant = null;
      return admit(token);
    }
    // A key without the scope of events may see fleets.
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
  // Another key was given meanwhile.
  if (mine !== visit) return;
  key.set(token);
  byId("gate").hidden = true;
  for (const id of ["controls", "panels", "skip"]) byId(id).hidden = false;
  const made = PANELS.map((spec) => new Panel(spec, ctx));
  byId("panels").replaceChildren(...made.map((panel) => panel.root));
  // They look once it is known at what.
  await names();
  if (mine !== visit) return;
  panels = made;
  look();
}

/** Enter with the key of this tab; while the service is away it is kept, and tried again. */
async function reenter() {
  const kept = key.get();
  if (!kept) return;
  try {
    await enter(kept);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401 || error.status === 403) return leave(explained(error));
    byId("gate").hidden = false;
    refused(`${explained(error)} The key is kept, and it is tried again by itself.`);
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
whenLost(() => leave("The key is no longer valid. Perhaps it was revoked."));

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

// -- at what

let named = 0; // when names are to be asked for again

function choose(id, values, chosen) {
  const select = byId(id);
  // An open list is not made anew under the pointer.
  if ([...select.options].map((each) => each.value).join("\n") !== values.join("\n")) select.replaceChildren(...values.map((value) => el("option", { value }, value)));
  if (chosen) select.value = chosen;
  select.closest("label").hidden = !values.length;
}

/** The names in a list; [] of one the key may not see, which `barred` tells, null when there is no answer. */
async function listed(path, query) {
  try {
    return (await all(path, query)).items.map((each) => each.name);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status !== 403) return null;
    ctx.barred = error.detail;
    return [];
  }
}

/** The tenants and fleets there are. What was chosen stays while it is there, and while nobody answers. */
async function names() {
  named = performance.now() + NEW_NAMES;
  const before = [ctx.tenant, ctx.fleet];
  const tenants = ctx.admin ? await listed("v1/tenants", {}) : [];
  if (tenants && ctx.admin) ctx.tenant = tenants.includes(ctx.tenant) ? ctx.tenant : tenants.includes("demo") ? "demo" : tenants[0] ?? null;
  const tenant = ctx.tenant;
  ctx.barred = "";
  const fleets = ctx.admin && !tenant ? [] : await listed("v1/fleets", ctx.query);
  // Another may have been chosen meanwhile.
  if (tenant !== ctx.tenant || !key.get()) return;
  if (tenants) choose("tenant", tenants, ctx.tenant);
  if (fleets) {
    ctx.fleet = fleets.includes(ctx.fleet) ? ctx.fleet : fleets[0] ?? null;
    choose("fleet", fleets, ctx.fleet);
  }
  if (!tenants || !fleets) named = performance.now() + AGAIN;
  if (before[0] !== ctx.tenant || before[1] !== ctx.fleet) changed();
}

/** Something else is looked at: reloading the page, or its address sent to somebody, leads there too. */
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
  say(ctx.live ? "The panels follow the service." : "The panels stand still.");
  tick();
});
byId("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;

// -- when

/** Each panel looks if it is time for it; none waits for another. */
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
