// The view of events: one by its id, or those that match filters.

import { Refused, call } from "./api.js";
import { badge, chosenTime, count, cut, el, field, focusOn, folded, keeps, keepsOf, localValue, moment, plural, problem, say, span, table } from "./dom.js";
import { bulkActions } from "./bulk.js";
import { STATES, showEvent, stateBadge } from "./event.js";
import { newEvent } from "./event_form.js";
import { statsOf } from "./events.js";

const STEP = 100; // events shown at first, and added by each press of the button
const PAGES = 5; // a page of the service may be short: pages that one press reads at most

/** Load the next events of a search. Return them, the cursor of the rest, and whether the service has stopped at a limit of what it reads. */
async function load(ctx, filters, cursor, signal) {
  const items = [];
  let page = null;
  for (let pages = 0; pages < PAGES && items.length < STEP && (pages === 0 || cursor); pages += 1) {
    page = await call("GET", "v1/events", { query: { ...ctx.query, ...filters, limit: STEP - items.length, cursor }, signal });
    items.push(...page.items);
    cursor = page.next;
  }
  return { items, cursor, incomplete: Boolean(cursor && page.incomplete) };
}

/** Return the number of all events that match, if the service counts them. */
async function total(ctx, filters) {
  const names = Object.keys(filters);
  if (names.length !== 1) return null;
  const stats = await statsOf(ctx);
  if (filters.state === "retrying") return stats.retrying;
  return filters.held && !stats.held_partial ? stats.held : null;
}

/** Return the sentence about how much of the result is shown. */
function extent({ items, cursor, incomplete, all }) {
  if (!cursor) return `${plural(items.length, "event")}, sorted by due time. That is all.`;
  if (incomplete) return `Showing ${plural(items.length, "event")} so far. The search is not complete: the service has read as much as one search may read, and more events may match.`;
  const some = all && all > items.length ? `${count(items.length)} of ${count(all)}` : count(items.length);
  return `Showing ${some} events, sorted by due time among those shown. There are more.`;
}

const late = (event) => (event.late_ms !== undefined && event.late_ms !== null ? span(event.late_ms) : "–");
const failure = (event) => event.error ?? event.attempts?.at(-1)?.error ?? event.late_because?.[0]?.text ?? "";

export const search = {
  id: "search", title: "Events", view: "events", needs: "events", every: () => Infinity,
  tools(ctx, refresh) {
    const id = field("Event id", { required: true, maxLength: 200, spellcheck: false });
    const one = el("form", { class: "filters one" }, id.box, el("p", {}, el("button", { type: "submit" }, "Open")));
    one.addEventListener("submit", (submitted) => {
      submitted.preventDefault();
      showEvent(ctx, id.input.value.trim(), () => ctx.acted());
    });
    // Spaces alone are no id, and a pattern names the place before anything is asked.
    Object.assign(id.input, { pattern: ".*\\S.*", title: "The id of an event, such as order-17" });
    const fields = {
      state: field("State", {}, "select", el("option", { value: "" }, "any"), Object.keys(STATES).map((state) => el("option", { value: state }, state))),
      channel: field("Channel", { maxLength: 40, spellcheck: false }),
      label: field("Labels", { placeholder: "order=17,team=blue", spellcheck: false }),
      from: field("Due from", { type: "datetime-local", step: 1 }),
      to: field("Due before", { type: "datetime-local", step: 1 }),
      id_prefix: field("Id begins with", { maxLength: 200, spellcheck: false }),
      error: field("Last error contains", { maxLength: 200, spellcheck: false }),
      held: field("Held only", { type: "checkbox" }),
    };
    const set = (filters) => {
      for (const [name, { input }] of Object.entries(fields)) {
        if (name === "held") input.checked = Boolean(filters.held);
        else input.value = ["from", "to"].includes(name) && filters[name] ? localValue(filters[name]) : filters[name] ?? "";
      }
    };
    const clear = el("button", { type: "reset" }, "Clear");
    const many = el("form", { class: "filters" }, Object.values(fields).map((each) => each.box), el("p", { class: "actions" }, el("button", { type: "submit", class: "primary" }, "Search"), clear));
    const read = () => Object.fromEntries(Object.entries(fields).map(([name, { input }]) => [name, name === "held" ? input.checked && "true" : ["from", "to"].includes(name) ? chosenTime(input) : input.value.trim()]).filter(([, value]) => value));
    many.addEventListener("submit", (submitted) => {
      submitted.preventDefault();
      ctx.filters = read();
      ctx.searching?.();
      refresh();
    });
    many.addEventListener("reset", () => {
      ctx.filters = {};
      ctx.searching?.();
      refresh();
    });
    // Another view may have asked for a search.
    ctx.filtered = () => {
      set(ctx.filters);
      if (Object.keys(ctx.filters).length) filters.open = true;
    };
    // On a phone, the list comes first.
    const filters = el("details", { open: !matchMedia("(max-width: 620px)").matches }, el("summary", {}, "Filters"), many);
    const create = el("button", { type: "button", class: "primary", onclick: () => {
      const mine = ctx.pinned();
      newEvent(mine, ctx.acted, (made) => showEvent(mine, made, ctx.acted));
    } }, "New event");
    return el("div", { class: "tools" }, ctx.may("events") && el("p", { class: "new" }, create), one, filters);
  },
  async load(ctx, signal) {
    const filters = (ctx.filters ??= {});
    ctx.filtered();
    const [found, all] = await Promise.all([load(ctx, filters, null, signal), total(ctx, filters)]);
    signal.throwIfAborted();
    say(extent({ ...found, all }));
    return { ...found, all, filters };
  },
  empty: ({ items, cursor, filters }) => (items.length || cursor ? null : Object.keys(filters).length ? "No event matches." : "There are no events yet. Create one with New event, or POST /api/v1/events."),
  build(body, ctx, refresh) {
    const sum = el("p", { class: "sum" });
    const acts = el("p", { class: "actions bulk" });
    const list = el("div", {});
    const note = el("p", { class: "note wrong", role: "alert", hidden: true });
    const more = el("button", { type: "button", class: "further", "data-keep": "more" });
    body.append(sum, acts, list, note, more);
    let shown = null;
    let sought = false; // true from the press of Search until the new result is there: nobody acts on all events of the former one
    const wait = () => {
      for (const each of acts.querySelectorAll("button")) each.disabled = true;
    };
    ctx.searching = () => {
      sought = true;
      wait();
    };

    function row(event) {
      const name = el("button", { type: "button", class: "link", "data-keep": `open ${event.id}`, title: event.id, onclick: () => showEvent(ctx, event.id, changed) }, folded(event.id, 40));
      return [name, [stateBadge(event), event.held ? [" ", badge("held", "warn")] : ""], moment(event.due), event.channel ?? "–", count(event.attempts?.length ?? 0), late(event), el("bdi", { class: "why", title: failure(event) }, cut(failure(event), 90))];
    }
    function draw() {
      const [kept, order] = [keeps(body), keepsOf(body)];
      const sorted = [...shown.items].sort((one, other) => Date.parse(one.due) - Date.parse(other.due));
      sum.textContent = extent(shown);
      acts.replaceChildren(...bulkActions(ctx, shown.filters, refresh));
      if (sought) wait();
      list.replaceChildren(...(sorted.length ? [table("Events", ["event", "state", "due", "channel", "attempts", "late", "why"], sorted.map(row))] : []));
      more.hidden = !shown.cursor;
      more.textContent = shown.incomplete ? "Search on" : `Show ${STEP} more`;
      focusOn(body, kept, order);
    }
    function changed(event) {
      shown.items = shown.items.map((each) => (each.id === event.id ? event : each));
      draw();
      ctx.acted();
    }
    more.addEventListener("click", async () => {
      const before = shown;
      more.disabled = true;
      note.hidden = true;
      try {
        const found = await load(ctx, before.filters, before.cursor);
        // Another search may have begun meanwhile.
        if (before !== shown) return;
        shown = { ...before, ...found, items: [...before.items, ...found.items] };
        say(extent(shown));
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        note.hidden = false;
        note.textContent = problem(error);
      } finally {
        more.disabled = false;
      }
      draw();
    });
    return {
      show(data) {
        sought = false;
        shown = data;
        draw();
      },
    };
  },
};
