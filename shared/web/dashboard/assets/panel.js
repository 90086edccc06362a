// A panel: a card that loads data and shows the data, a note that there is none, or the failure.

import { Refused, present } from "./api.js";
import { clock, el, focusOn, keepsOf, keeps, problem, say, sentence } from "./dom.js";
import { answered, lost } from "./reach.js";

const PART = 5; // a panel loads for at most a fifth of the time, so that a slow service gets fewer calls
const WORST = 30_000; // longest pause between attempts after repeated failures, in ms

/** Return advice for a failure. */
function hint(error) {
  if (error.status === 403) return "Use a key that has this scope, or the admin key.";
  if (error.status === 404) return "It may have been deleted.";
  if (error.status === 0 || error.status === 429 || error.status >= 500) return "The panel tries again automatically.";
  return "";
}

export class Panel {
  /**
   * spec: `id`, `title`, `view` (the tab), `needs` (the scope with which a key reads it), `every(ctx)` (ms between loads; Infinity: only when asked), `still(data)` (a text; the view is not touched while it
   * stays the same), `fleet` (true if it shows a fleet, "list" if it shows all), `rare` (true if it is shown only while it has data), `fleeting` (true if its data say nothing once the service does not answer), `tools(ctx, refresh)` -> a node above the data that stays in every state, `load(ctx, signal)` -> data, `empty(data)` -> a text or null,
   * `build(body, ctx, refresh)` -> `{show(data, ctx), end()}`.
   */
  constructor(spec, ctx) {
    Object.assign(this, { spec, ctx, view: null, filled: false, shown: null, next: 0, going: null, failures: 0, at: null });
    this.seen = el("span", { class: "seen", title: "Time of the last load" });
    this.note = el("p", { class: "note" });
    this.body = el("div", { class: "body", hidden: true });
    this.title = el("h2", { id: `title-${spec.id}`, tabIndex: -1 }, spec.title);
    this.root = el("section", { class: "card panel", id: `panel-${spec.id}`, "aria-labelledby": `title-${spec.id}` },
      el("header", { class: "head" }, this.title, this.seen), spec.tools?.(ctx, () => this.refresh()), this.note, this.body);
    this.root.hidden = this.unseen;
    this.state("loading", "Loading …");
  }

  /** True for a panel of fleets where there is none. If it is not known whether there is one, the list of fleets shows why. */
  get leftOut() {
    const { spec, ctx } = this;
    return Boolean(spec.fleet && !ctx.fleet && !(spec.fleet === "list" && ctx.unsure));
  }

  /** True for a panel that is not on the page now. */
  get unseen() {
    return this.leftOut || Boolean(this.spec.rare && !this.filled);
  }

  state(name, text = "") {
    if (name === "error" && !this.unseen && this.root.dataset.state !== "error") say(`${this.spec.title}: ${text}`);
    this.root.dataset.state = name;
    this.note.className = name === "error" ? "note wrong" : "note";
    this.note.hidden = !text;
    this.note.textContent = text;
    // The element with the focus disappears with the data.
    const kept = name === "empty" && !this.body.hidden && keeps(this.body);
    this.body.hidden = name === "loading" || name === "empty" || !this.view || (name === "stale" && this.spec.fleeting);
    if (kept) this.title.focus({ preventScroll: true });
    this.root.setAttribute("aria-busy", String(name === "loading"));
  }

  /** Remove what is shown, because another tenant, fleet or range was chosen. */
  reset() {
    this.end();
    this.next = this.failures = 0;
    this.at = null;
    this.filled = false;
    this.seen.textContent = "";
    this.state("loading", "Loading …");
  }

  end() {
    this.going?.abort();
    this.going = null;
    this.view?.end?.();
    this.view = this.shown = null;
    this.body.replaceChildren();
  }

  show(data) {
    // An unchanged list is not touched, so that a selection in it stays.
    const text = this.spec.still?.(data) ?? null;
    if (text !== null && text === this.shown) return;
    const [kept, order] = [keeps(this.body), keepsOf(this.body)];
    const scrolled = [...this.body.querySelectorAll(".scroll")].map((each) => each.scrollTop);
    this.view.show(data, this.ctx);
    this.shown = text;
    // The element with the focus was replaced; the focus moves to its replacement, or to the next one of its kind.
    focusOn(this.body, kept, order, this.title);
    [...this.body.querySelectorAll(".scroll")].forEach((each, at) => (each.scrollTop = scrolled[at] ?? 0));
  }

  /** Load again now. */
  refresh() {
    this.next = 0;
    this.shown = null;
    this.ctx.kept.clear();
    this.going?.abort();
    this.going = null;
    return this.turn();
  }

  /** Load again soon, without waiting for the pause after failures. */
  wake() {
    if (this.failures || this.root.dataset.state === "stale") this.next = this.failures = 0;
  }

  /** Load at the next turn, because something was changed on the page. */
  soon() {
    this.shown = null;
    if (this.spec.every(this.ctx) === Infinity) return;
    this.next = 0;
    // What is under way may be from before the change.
    this.going?.abort();
    this.going = null;
  }

  /** Show that the service does not answer. Requests that are under way go on. */
  lose() {
    if (this.unseen || this.spec.view !== this.ctx.view) return;
    this.state("stale", !this.view ? "Waiting for the service …" : this.spec.fleeting ? "Not known while the service does not answer." : "");
  }

  async failed(error, going) {
    const known = error instanceof Refused;
    if (known && (await lost(error))) {
      if (going.signal.aborted) return;
      // The banner says what is wrong, and the panel loads when the service answers.
      this.next = this.failures = 0;
      return this.lose();
    }
    if (going.signal.aborted) return;
    this.failures += 1;
    const wait = Math.max(error.after ?? 0, Math.min(WORST, this.spec.every(this.ctx) * 2 ** (this.failures - 1)));
    // A missing scope does not change with time, nor does what a person has asked for.
    const lasts = error.status === 403 || (this.spec.every(this.ctx) === Infinity && error.status >= 400 && error.status < 500 && error.status !== 429);
    this.next = lasts ? Infinity : performance.now() + wait;
    const text = known ? problem(error) : "This page could not display the answer of the service";
    this.state("error", [sentence(text), known ? hint(error) : "", this.view && this.at ? `The panel shows data from ${this.at}.` : ""].filter(Boolean).join(" "));
  }

  /** Load if it is time. Faults of the page itself are thrown. */
  async turn() {
    this.root.hidden = this.unseen;
    if (performance.now() < this.next || this.going || !this.root.isConnected || this.leftOut || this.spec.view !== this.ctx.view) return;
    const going = (this.going = new AbortController());
    const began = performance.now();
    try {
      const data = await this.spec.load(this.ctx, going.signal);
      if (going.signal.aborted) return;
      this.next = performance.now() + Math.max(this.spec.every(this.ctx), PART * (performance.now() - began));
      const none = this.spec.empty?.(data);
      this.filled = !none;
      this.root.hidden = this.unseen;
      if (!none) {
        this.body.hidden = false;
        this.view ??= this.spec.build(this.body, this.ctx, () => this.refresh());
        this.show(data);
      }
      this.failures = 0;
      this.at = clock(present() / 1000, true);
      answered(this.at);
      this.seen.textContent = `as of ${this.at}`;
      this.state(none ? "empty" : "data", none ?? "");
    } catch (error) {
      if (going.signal.aborted) return;
      await this.failed(error, going);
      if (!(error instanceof Refused)) throw error;
    } finally {
      if (this.going === going) this.going = null;
    }
  }
}
