// The story of one Scheduled Event: the steps of all its nodes and the app's decisions, in order of time, in a dialog.

import { all, enc } from "./api.js";
import { badge, el, moment, open, own, plural, problem, span, table } from "./dom.js";

const MOST = 500; // steps that are shown; the command shows all

/** Open the story of an event. `ctx`: the page's fleet and query. */
export async function story(event, ctx) {
  const place = el("div", { class: "story", role: "region", "aria-label": "Steps" }, el("p", {}, "Loading…"));
  const dialog = open(`Story of ${event.event_id}`, place);
  dialog.classList.add("wide");
  const ended = new AbortController();
  dialog.addEventListener("close", () => {
    ended.abort();
  }, { once: true });
  try {
    const { items, more } = await all(`v1/fleets/${enc(ctx.fleet)}/maintenance/events/${enc(event.event_id)}/story`, ctx.query, ended.signal, MOST, 1);
    const nodes = new Set(items.map((step) => step.node).filter(Boolean));
    place.replaceChildren(
      el("p", {}, `${event.type}, ${event.status}: ${plural(items.length, "step")}${more ? " and more" : ""} on ${plural(nodes.size, "node")}, in order of time.`),
      table("Steps of the event", ["time", "node", "by", "what"], items.map(row)));
  } catch (error) {
    if (ended.signal.aborted) return;
    place.replaceChildren(el("p", { class: "note", role: "alert" }, problem(error)));
  }
}

function row(step) {
  const about = [step.level === "warning" ? badge("warning", "warn") : null, step.level === "warning" ? " " : "", own(step.text)];
  if (step.clock_corrected_ms) about.push(el("span", { class: "dim" }, ` (the node's clock differs by ${span(Math.abs(step.clock_corrected_ms))})`));
  return [moment(step.at), step.node ? own(step.node) : "all", step.by, el("span", { title: step.action }, about)];
}
