// Changes of all events that match a search: the service counts them, a person confirms the count by typing it, and a dialog follows the job to its report.

import { Refused, call, enc, pause } from "./api.js";
import { chosenTime, count, el, field, folded, isShown, moment, open, own, plural, problem, table, tell } from "./dom.js";
import { stateBadge } from "./event.js";

const POLL = 700; // ms between two reads of a job
const CHANGEABLE = ["", "scheduled", "retrying"];

/** The actions on all events that match. `in`: the states that a search may name for it. */
const ACTIONS = [
  { name: "cancel", text: "Cancel", done: "cancelled", in: CHANGEABLE, about: "They will not be delivered. This cannot be undone.", danger: true },
  { name: "move", text: "Move", done: "moved", in: CHANGEABLE, about: "They will be delivered at their new times." },
  { name: "fire", text: "Fire now", done: "fired", in: CHANGEABLE, about: "They will be delivered at once instead of at their due times." },
  { name: "redrive", text: "Redrive", done: "redriven", in: ["", "dead"], about: "They will be delivered again to their channels. Check first that the cause of their failure is gone." },
];

/** Parse labels as the search writes them, order=17,team=blue; a backslash makes the next character literal. */
const labelsOf = (text) => Object.fromEntries([...text.matchAll(/([^=,]+)=((?:\\.|[^,\\])*)/g)].map(([, name, value]) => [name, value.replaceAll(/\\(.)/g, "$1")]));

/** Return the filter of a job for the filters of a search. */
function filterOf({ label, held, ...filters }) {
  return { ...filters, ...(label ? { labels: labelsOf(label) } : {}) };
}

/** Return the actions that a search allows. */
const allowed = (filters) => (filters.held ? [] : ACTIONS.filter((each) => each.in.includes(filters.state ?? "")));

const pathOf = (id) => `v1/jobs/${enc(id)}`;
const seen = (job) => job.done + job.skipped + job.failed;
const actionOf = (job) => ACTIONS.find((each) => each.name === job.action) ?? { text: job.action, done: job.action, about: "" };
const filterText = (filter) => Object.entries(filter).filter(([, value]) => value !== null && (typeof value !== "object" || Object.keys(value).length)).map(([name, value]) => (name === "labels" ? Object.entries(value).map(([label, each]) => `${label}=${each}`).join(", ") : `${name.replace("_", " ")} ${value}`)).join("; ") || "all events";

/** Ask by how much, or to which time, events are moved; then prepare the job. */
function askMove(ctx, query, filters, changed) {
  const way = field("Move", {}, "select", el("option", { value: "later" }, "later by"), el("option", { value: "earlier" }, "earlier by"), el("option", { value: "due" }, "all to one time"));
  const time = field("How much", { placeholder: "PT1H", maxLength: 40, required: true, spellcheck: false });
  const due = field("New due time", { type: "datetime-local", step: 1 });
  due.box.hidden = true;
  way.input.addEventListener("change", () => {
    const to = way.input.value === "due";
    due.box.hidden = !to;
    time.box.hidden = to;
    due.input.required = to;
    time.input.required = !to;
  });
  const note = el("p", { class: "note wrong", role: "alert", hidden: true });
  const button = el("button", { type: "submit", class: "primary" }, "Count the events");
  const form = el("form", {}, el("p", {}, "The service counts the events that match. Nothing is changed yet."), way.box, time.box, due.box, note, el("p", {}, button));
  open("Move all that match", form);
  way.input.focus();
  form.addEventListener("submit", async (submitted) => {
    submitted.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    note.hidden = true;
    try {
      await prepare(ctx, query, "move", filters, way.input.value === "due" ? { due: chosenTime(due.input) } : { [way.input.value]: time.input.value.trim() }, form, changed);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      note.hidden = false;
      note.textContent = problem(error);
      button.disabled = false;
    }
  });
}

/** Let the service count the events that match, and follow the job. `form`: the open dialog; nothing is shown once it is closed. */
async function prepare(ctx, query, action, filters, more, form, changed) {
  const job = await call("POST", "v1/jobs", { query, body: { action, filter: filterOf(filters), ...more } });
  if (!isShown(form)) return drop(query, job.id);
  followJob(ctx, job, changed, query);
}

/** Cancel a job that nobody will confirm. It ends by itself after an hour otherwise. */
async function drop(query, id) {
  try {
    await call("POST", `${pathOf(id)}/cancel`, { query });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
}

/** Start an action on all events that match the filters of a search. */
async function changeAll(ctx, action, filters, changed) {
  const { query } = ctx;
  if (action === "move") return askMove(ctx, query, filters, changed);
  const wait = el("p", { class: "note", role: "status" }, "The service counts the events that match …");
  open(`${ACTIONS.find((each) => each.name === action).text} all that match`, wait);
  try {
    await prepare(ctx, query, action, filters, {}, wait, changed);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (!isShown(wait)) return tell(problem(error));
    wait.className = "note wrong";
    wait.textContent = problem(error);
  }
}

const samples = (job) => table("Some of the events", ["event", "state", "due", "channel"], job.sample.map((each) => [el("bdi", { title: each.id }, folded(each.id, 40)), stateBadge(each), moment(each.due), own(each.channel)]));
const reasons = (job) => {
  const known = Object.entries(job.reasons);
  return known.length ? el("ul", { class: "reasons" }, known.map(([reason, number]) => el("li", {}, `${count(number)}: `, own(reason)))) : null;
};

/** Return what a job has done, in a sentence. */
export function report(job) {
  const { done } = actionOf(job);
  const rest = [job.skipped && `${count(job.skipped)} skipped`, job.failed && `${count(job.failed)} failed`].filter(Boolean);
  const end = { done: "", cancelled: " The job was stopped.", expired: " The job has expired." }[job.state] ?? "";
  return `${count(job.done)} of ${plural(job.count, "event")} ${done}${rest.length ? `, ${rest.join(", ")}` : ""}.${end}`;
}

/** Open the dialog of a job, and follow it until its end: count, confirmation, progress, report. `changed` is called once it has changed events. */
export function followJob(ctx, job, changed = () => {}, query = ctx.query) {
  const action = actionOf(job);
  const part = el("div", {});
  const note = el("p", { class: "note", role: "status" });
  const dialog = open(`${action.text} all that match`, el("p", { class: "about" }, own(filterText(job.filter))), note, part);
  dialog.classList.add("wide");
  dialog.querySelector(".close").focus();
  let state = "";
  let started = false; // true once a person has confirmed the count here
  const finished = () => {
    ctx.acted();
    changed();
  };
  const shown = () => isShown(part);
  const told = (text, kind = "") => {
    note.className = `note ${kind}`;
    if (note.textContent !== text) note.textContent = text;
  };

  dialog.addEventListener("close", () => {
    if (!part.isConnected) return;
    if (["counting", "counted"].includes(state) && !started) drop(query, job.id);
    else if (state === "running") tell("The job goes on. It is listed above the events.");
    if (started) finished();
  }, { once: true });

  const send = async (verb, body, button) => {
    button.disabled = true;
    try {
      job = await call("POST", `${pathOf(job.id)}/${verb}`, { query, body });
      draw();
      return true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      told(problem(error), "wrong");
      button.disabled = false;
      // Without an answer, the service may have done it.
      return error.status === 0 || error.status >= 500;
    }
  };

  function counted() {
    if (!job.count) {
      told("No event matches.");
      return part.replaceChildren();
    }
    const wanted = String(job.count);
    const typed = field(`Type the count to confirm: ${count(job.count)}`, { inputMode: "numeric", maxLength: 20, spellcheck: false });
    const button = el("button", { type: "submit", class: action.danger ? "danger" : "primary", disabled: true }, `${action.text} ${plural(job.count, "event")}`);
    const agrees = () => typed.input.value.replaceAll(/[\s,.'’]/g, "") === wanted;
    typed.input.addEventListener("input", () => (button.disabled = !agrees()));
    const form = el("form", { class: "ask" }, el("p", {}, action.about, job.later ? ` They are due ${job.later} later.` : job.earlier ? ` They are due ${job.earlier} earlier.` : "", job.due ? [" New due time: ", moment(job.due), "."] : ""), typed.box,
      el("p", { class: "actions" }, button, el("button", { type: "button", onclick: () => dialog.close() }, "Change nothing")));
    form.addEventListener("submit", async (submitted) => {
      submitted.preventDefault();
      if (!agrees() || button.disabled) return;
      started = true;
      started = await send("confirm", { confirmation: job.confirmation }, button);
    });
    told(`${plural(job.count, "event")} ${job.count === 1 ? "matches" : "match"}.${job.more ? " More match than one job may change: it takes the first ones." : ""}`);
    part.replaceChildren(el("h3", {}, job.count > job.sample.length ? `${count(job.sample.length)} of them` : "The events"), samples(job), form);
    typed.input.focus();
  }

  const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress" });
  const figures = el("p", {});
  function running(first) {
    if (first) {
      const stop = el("button", { type: "button", onclick: () => send("cancel", undefined, stop) }, "Stop the job");
      part.replaceChildren(bar, figures, el("p", { class: "actions" }, stop));
      stop.focus();
      told("The job is running. What it has changed stays changed if you stop it.");
    }
    bar.max = Math.max(1, job.count);
    bar.value = seen(job);
    figures.textContent = `${count(seen(job))} of ${count(job.count)}: ${count(job.done)} ${action.done}, ${count(job.skipped)} skipped, ${count(job.failed)} failed.`;
  }

  function ended() {
    told(report(job), job.failed || job.state !== "done" ? "wrong" : "done");
    const failures = job.failures.map((each) => [el("bdi", { title: each.id }, each.id), own(each.reason)]);
    part.replaceChildren(...[reasons(job), failures.length ? el("h3", {}, job.failed > failures.length ? `The first ${count(failures.length)} that failed` : "Failed") : null, failures.length ? table("Failed events", ["event", "reason"], failures) : null].filter(Boolean));
    dialog.querySelector(".close").focus();
    if (started) finished();
  }

  function draw() {
    const first = job.state !== state;
    state = job.state;
    if (state === "counting") told(`Counting: ${count(job.count)} so far …`);
    else if (state === "counted") first && counted();
    else if (state === "running") running(first);
    else if (first) ended();
  }

  async function watch() {
    draw();
    while (shown() && ["counting", "counted", "running"].includes(state)) {
      await pause(POLL);
      if (!shown()) return;
      // A job that waits for its confirmation does not change, and a hidden page sends no requests.
      if ((state === "counted" && !started) || document.hidden) continue;
      try {
        job = await call("GET", pathOf(job.id), { query });
        draw();
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        told(`${problem(error)} The page looks again.`, "wrong");
        await pause(Math.max(5 * POLL, error.after));
      }
    }
  }
  watch();
}

/** Return the row of buttons that change all events of a search. `changed` is called once one of them has. */
export function bulkActions(ctx, filters, changed) {
  if (!ctx.may("events")) return [];
  const found = allowed(filters);
  if (!found.length) return [el("span", { class: "about" }, filters.held ? "Held events cannot be changed together: search for their channel instead." : `Events that are ${filters.state} cannot be changed.`)];
  return [el("span", { class: "about" }, Object.keys(filters).length ? "All that match: " : "All events: "), ...found.map((each) => el("button", { type: "button", "data-keep": `bulk ${each.name}`, "aria-label": `${each.text} all that match`, onclick: () => changeAll(ctx, each.name, filters, changed) }, `${each.text} …`))];
}
