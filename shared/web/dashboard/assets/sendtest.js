// A test of a channel: a real event, and the receiver's answer to it as soon as it comes.

import { Refused, call, enc, newId, pause, repeatable } from "./api.js";
import { el, facts, isShown, open, own, plural, problem, say, sentence, span, tell } from "./dom.js";
import { showEvent } from "./event.js";

const POLL = 500; // ms between two reads of the event
const LONGEST = 90_000; // ms after which the page stops reading: longer than a channel's longest time-out
const EXPIRES = "PT10M"; // a test that waits for a blocked channel ends after this time
const WAITS = ["queued", "scheduled", "firing"];

/** Return the result of a test as a sentence, and true if it is good; null while there is none. */
function verdict(event) {
  const attempt = event.attempts?.at(-1);
  const took = attempt ? ` in ${span(attempt.took_ms)}` : "";
  const why = attempt ? [attempt.status && !(attempt.error ?? "").includes(attempt.status) ? attempt.status : "", attempt.error ?? ""].filter(Boolean).join(" ") : event.error ?? "";
  switch (event.state) {
    case "delivered": return { good: true, text: `Delivered${took}${attempt?.status ? `: the receiver answered ${attempt.status}` : ""}.` };
    case "working": return { good: true, text: "The receiver has accepted the event and works on it." };
    case "dead": return { good: false, text: sentence(`Refused${took}: ${why || "dead"}`) };
    case "retrying": return { good: false, text: sentence(`Failed${took}: ${why || "no answer"}`) };
    case "lapsed": return { good: false, text: "The test was not delivered in time, and has ended." };
    case "cancelled": return { good: false, text: "The test is cancelled." };
    default: return null;
  }
}

/** Return the head of the receiver's answer, as texts. */
function answer(event) {
  const found = event.attempts?.at(-1)?.answer;
  if (!found) return [];
  const body = found.body ?? "";
  return [el("h3", {}, "Answer"), facts([["media type", found.content_type && own(found.content_type)], ...Object.entries(found.headers ?? {}).map(([name, value]) => [own(name), own(String(value))])]),
    body ? el("pre", { tabIndex: 0, role: "region", "aria-label": "Body of the answer" }, body) : el("p", { class: "dim" }, "It has no body.")];
}

/** Open the dialog that sends a test to a channel. `blocked`: nothing is delivered to it now. */
export function sendTest(ctx, channel, blocked) {
  // The page may turn to another tenant while the test is under way.
  const { query } = ctx;
  const payload = el("textarea", { id: "test-payload", class: "code", rows: 4, spellcheck: false, value: '{"test": true}' });
  const fault = el("p", { class: "note wrong", role: "alert", hidden: true });
  const button = el("button", { type: "submit", class: "primary" }, "Send the test");
  const note = el("p", { class: "note", role: "status" });
  const found = el("div", {});
  const acts = el("p", { class: "actions" });
  const form = el("form", {}, el("p", {}, "A real event is delivered to the channel now. If the receiver fails, it is not tried again; if it refuses the event, that counts as a dead event."),
    blocked ? el("p", { class: "note wrong" }, "Nothing is delivered to this channel now. The test waits for ten minutes at most.") : "",
    el("p", { class: "field" }, el("label", { for: "test-payload" }, "Payload (JSON)"), payload), fault, el("p", {}, button));
  open(`Send a test to ${channel}`, form, note, found, acts);
  payload.focus();

  const shown = () => isShown(note);
  let unsure = null; // the id and the payload of a test that may be stored
  function report(text, kind = "") {
    note.className = `note ${kind}`;
    note.textContent = text;
  }
  const link = (id) => el("button", { type: "button", onclick: () => showEvent(ctx, id, ctx.acted) }, "Open the event");

  /** Cancel a test. One that has ended meanwhile stays as it is. */
  async function cancel(id) {
    try {
      await call("DELETE", `v1/events/${enc(id)}`, { query });
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 409) throw error;
    }
  }

  async function follow(id) {
    const path = `v1/events/${enc(id)}`;
    const began = performance.now();
    for (;;) {
      const event = await call("GET", path, { query });
      const known = verdict(event);
      if (known) {
        // A test is tried once.
        if (event.state === "retrying") await cancel(id);
        const text = event.state === "retrying" ? `${known.text} It is not tried again.` : known.text;
        if (!shown()) return tell(`Test of ${channel}: ${text}`);
        report(text, known.good ? "done" : "wrong");
        found.replaceChildren(...answer(event));
        acts.replaceChildren(link(id));
        return;
      }
      const past = performance.now() - began;
      if (past > LONGEST) {
        if (shown()) report("The test is still waiting. Open the event to see why.");
        return;
      }
      if (shown()) report(event.held ? `The test waits: ${event.held.reason === "paused" ? "the channel is paused" : event.held.reason}.` : `Waiting for the answer for ${span(past)} …`);
      await pause(POLL);
    }
  }

  form.addEventListener("submit", async (submitted) => {
    submitted.preventDefault();
    if (button.disabled) return;
    let body;
    try {
      body = JSON.parse(payload.value);
    } catch (error) {
      fault.textContent = `The payload is not JSON: ${error.message}`;
      fault.hidden = false;
      return payload.focus();
    }
    fault.hidden = true;
    button.disabled = true;
    found.replaceChildren();
    report("Sending …");
    if (unsure?.payload !== payload.value) unsure = { id: `~${newId()}`, payload: payload.value };
    try {
      const made = await repeatable(call("POST", "v1/events", { query, body: { id: unsure.id, channel, delay: "PT0S", expires: EXPIRES, payload: body } }));
      unsure = null;
      if (shown()) acts.replaceChildren(link(made.id), el("button", { type: "button", onclick: () => stop(made.id) }, "Cancel the test"));
      await follow(made.id);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (shown()) report(problem(error), "wrong");
    } finally {
      button.disabled = false;
      button.textContent = "Send another";
      ctx.acted();
    }
  });

  async function stop(id) {
    try {
      await cancel(id);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      report(problem(error), "wrong");
    }
  }
}
