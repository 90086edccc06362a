// A panel: a card that loads, and shows data, that there is none, or what went wrong.

import { Refused, present } from "./api.js";
import { clock, el, focusOn, keeps, say } from "./dom.js";

const PART = 5; // a panel asks for at most a fifth of the time: a slow service is asked less often
const WORST = 30_000; // ms between looks at what fails again and again

/** What is told of a failure, and what to do. */
function hint(error) {
  if (error.status === 403) return "Use a key that has this scope, or the admin key.";
  if (error.status === 404) return "It may have been removed.";
  if (error.status === 0 || error.status === 429 || error.status >= 500) return "It is tried again by itself.";
  return "";
}

export class Panel {
  /**
   * spec: `id`, `title`, `every(ctx)` (ms between looks), `still(data)` (a text; while it is the same the view is left alone), `fleet` (whether it is of a fleet),
   * `load(ctx, signal)` -> data, `empty(data)` -> a text or null, `build(body, ctx, refresh)` -> `{show(data, ctx), end()}`.
   */
  constructor(spec, ctx) {
    Object.assign(this, { spec, ctx, view: null, told: null, next: 0, going: null, failures: 0, at: null });
    this.seen = el("span", { class: "seen", title: "When this was asked for" });
    this.note = el("p", { class: "note" });
    this.body = el("div", { class: "body", hidden: true });
    this.root = el("section", { class: "card panel", id: `panel-${spec.id}`, "aria-labelledby": `title-${spec.id}` },
      el("header", { class: "head" }, el("h2", { id: `title-${spec.id}` }, spec.title), this.seen), this.note, this.body);
    this.state("loading", "Loading …");
  }

  state(name, text = "") {
    if (name === "error" && this.root.dataset.state !== "error") say(`${this.spec.title}: ${text}`);
    this.root.dataset.state = name;
    this.note.className = name === "error" ? "note wrong" : "note";
    this.note.hidden = !text;
    this.note.textContent = text;
    this.body.hidden = name === "loading" || name === "empty" || (name === "error" && !this.view);
    this.root.setAttribute("aria-busy", String(name === "loading"));
  }

  /** Forget what was shown: something else is to be looked at. */
  reset() {
    this.end();
    this.next = this.failures = 0;
    this.at = null;
    this.seen.textContent = "";
    this.state("loading", "Loading …");
  }

  end() {
    this.going?.abort();
    this.going = null;
    this.view?.end?.();
    this.view = this.told = null;
    this.body.replaceChildren();
  }

  show(data) {
    // Lists that say the same as before are left alone: a selection in them stays.
    const told = this.spec.still?.(data) ?? null;
    if (told !== null && told === this.told) return;
    const kept = keeps(this.body);
    const scrolled = [...this.body.querySelectorAll(".scroll")].map((each) => each.scrollTop);
    this.view.show(data, this.ctx);
    this.told = told;
    // What has the focus is made anew; the focus goes on to its like.
    focusOn(this.body, kept);
    [...this.body.querySelectorAll(".scroll")].forEach((each, at) => (each.scrollTop = scrolled[at] ?? 0));
  }

  /** Look again now. */
  refresh() {
    this.next = 0;
    this.told = null;
    this.ctx.kept.clear();
    this.going?.abort();
    this.going = null;
    return this.turn();
  }

  /** Look again soon, whatever went wrong before. */
  wake() {
    if (this.failures) this.next = this.failures = 0;
  }

  failed(error) {
    const known = error instanceof Refused;
    this.failures += 1;
    const wait = Math.max(error.after ?? 0, Math.min(WORST, this.spec.every(this.ctx) * 2 ** (this.failures - 1)));
    // What a key may not see it may not see in five seconds either.
    this.next = error.status === 403 ? Infinity : performance.now() + wait;
    const told = known ? `${error.title}${error.detail ? `: ${error.detail}` : ""}` : "This page could not show what came.";
    // Its last character is the sentence's end.
    this.state("error", [/[.!?]$/.test(told) ? told : `${told}.`, known ? hint(error) : "", this.view && this.at ? `Shown is what was known at ${this.at}.` : ""].filter(Boolean).join(" "));
  }

  /** Look if it is time. What the page itself does wrong is thrown on. */
  async turn() {
    if (performance.now() < this.next || this.going || !this.root.isConnected) return;
    if (this.spec.fleet && !this.ctx.fleet) return this.state("empty", this.ctx.barred ? `Missing scope: ${this.ctx.barred}.` : "There is no fleet. PUT /api/v1/fleets/{fleet} makes one.");
    const going = (this.going = new AbortController());
    const began = performance.now();
    try {
      const data = await this.spec.load(this.ctx, going.signal);
      if (going.signal.aborted) return;
      this.next = performance.now() + Math.max(this.spec.every(this.ctx), PART * (performance.now() - began));
      const none = this.spec.empty?.(data);
      if (!none) {
        this.body.hidden = false;
        this.view ??= this.spec.build(this.body, this.ctx, () => this.refresh());
        this.show(data);
      }
      this.failures = 0;
      this.at = clock(present() / 1000, true);
      this.seen.textContent = `as of ${this.at}`;
      this.state(none ? "empty" : "data", none ?? "");
    } catch (error) {
      if (going.signal.aborted) return;
      this.failed(error);
      if (!(error instanceof Refused)) throw error;
    } finally {
      if (this.going === going) this.going = null;
    }
  }
}
