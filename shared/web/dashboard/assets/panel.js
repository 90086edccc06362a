// A panel: a card that loads, and shows data, that there is none, or what went wrong.

import { Refused } from "./api.js";
import { el } from "./dom.js";

/** What is told of a failure, and what to do. */
function hint(error) {
  if (error.status === 403) return "Use a key that has this scope, or the admin key.";
  if (error.status === 404) return "It may have been removed.";
  if (error.status === 0 || error.status >= 500) return "It is tried again by itself.";
  return "";
}

export class Panel {
  /**
   * spec: `id`, `title`, `every` (ms between looks), `still` (whether it changes with its data alone), `fleet` (whether it is of a fleet), `load(ctx, signal)` -> data,
   * `empty(data)` -> a text or null, `build(body, ctx, refresh)` -> `{show(data, ctx), end()}`.
   */
  constructor(spec, ctx) {
    Object.assign(this, { spec, ctx, view: null, told: null, next: 0, going: null });
    this.note = el("p", { class: "note" });
    this.body = el("div", { class: "body", hidden: true });
    this.root = el("section", { class: "card panel", id: `panel-${spec.id}`, "aria-labelledby": `title-${spec.id}` },
      el("h2", { id: `title-${spec.id}` }, spec.title), this.note, this.body);
    this.state("loading", "Loading …");
  }

  state(name, text = "") {
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
    this.next = 0;
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
    const told = this.spec.still ? JSON.stringify(data) : null;
    if (told !== null && told === this.told) return;
    this.told = told;
    const kept = this.body.contains(document.activeElement) ? document.activeElement.dataset.keep : undefined;
    this.view.show(data, this.ctx);
    // What has the focus is made anew; the focus goes on to its like.
    if (kept && document.activeElement?.dataset?.keep !== kept) [...this.body.querySelectorAll("[data-keep]")].find((each) => each.dataset.keep === kept)?.focus({ preventScroll: true });
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

  /** Look if it is time; throws `Refused` with status 401 only. */
  async turn() {
    if (performance.now() < this.next || this.going) return;
    if (this.spec.fleet && !this.ctx.fleet) return this.state("empty", "This tenant has no fleet, or the key may not see fleets.");
    const going = (this.going = new AbortController());
    try {
      const data = await this.spec.load(this.ctx, going.signal);
      if (going.signal.aborted) return;
      this.next = performance.now() + this.spec.every;
      const none = this.spec.empty?.(data);
      if (none) return this.state("empty", none);
      this.state("data");
      this.view ??= this.spec.build(this.body, this.ctx, () => this.refresh());
      this.show(data);
    } catch (error) {
      if (going.signal.aborted) return;
      if (!(error instanceof Refused)) throw error;
      if (error.status === 401) throw error;
      // What a key may not see it may not see in five seconds either.
      this.next = error.status === 403 ? Infinity : performance.now() + this.spec.every;
      this.state("error", [`${error.title}: ${error.detail}`, hint(error), this.view ? "Shown is what was known before." : ""].filter(Boolean).join(" "));
    } finally {
      if (this.going === going) this.going = null;
    }
  }
}
