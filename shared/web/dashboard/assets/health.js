// The panel of timers and storage; with the admin key also the queues and the ledger of the whole service.

import { Refused, call, skew } from "./api.js";
import { badge, count, el, sentence, span, table } from "./dom.js";

/** Parse the gauges of Prometheus text, by name: [{labels, value}]. */
function gauges(text, wanted) {
  const found = Object.fromEntries(wanted.map((name) => [name, []]));
  for (const line of text.split("\n")) {
    const [, name, labels, value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (!found[name]) continue;
    const named = Object.fromEntries([...(labels ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, quoted]) => [label, quoted.replaceAll(/\\(.)/g, "$1")]));
    found[name].push({ labels: named, value: Number(value) });
  }
  return found;
}

/** Return the findings of `readyz`; a service that is not ready answers them with 503. */
async function ready(signal) {
  try {
    return await call("GET", "readyz", { signal, token: "" });
  } catch (error) {
    if (error instanceof Refused && error.status === 503 && error.body?.timers) return { ...error.body, status: "not-ready" };
    throw error;
  }
}

export const health = {
  id: "health", title: "Timers and storage", view: "overview", fleeting: true, every: () => 10_000,
  async load(ctx, signal) {
    const [found, text] = await Promise.all([ready(signal), ctx.admin ? call("GET", "metrics", { signal }) : null]);
    return { found, metrics: text === null ? null : gauges(text, ["tocsin_queue_messages", "tocsin_ledger_gap", "tocsin_lease_alarm"]) };
  },
  build(body) {
    const sum = el("p", { class: "sum" });
    const timers = el("div", {});
    const more = el("div", {});
    body.append(sum, timers, more);
    return {
      show({ found, metrics }) {
        sum.replaceChildren(badge(found.status === "ready" ? "ready" : "not ready", found.status === "ready" ? "good" : "bad"), " ",
          found.storage.reachable ? badge("storage answers", "good") : badge("storage does not answer", "bad"), " ",
          Object.entries(found.storage.accounts ?? {}).map(([place, fine]) => badge(`account ${place}`, fine ? "good" : "bad")), ` Clock difference to storage: ${span(found.clock_skew_ms === null ? null : Math.abs(found.clock_skew_ms))}.`, skew() ? ` This device's clock is ${span(Math.abs(skew()))} ${skew() > 0 ? "ahead of" : "behind"} the service's clock. Times on this page follow the service's clock.` : "", found.detail ? ` ${sentence(found.detail)}` : "");
        timers.replaceChildren(table("Timers", ["timer", "last tick", "state"], Object.entries(found.timers).map(([name, each]) => [name, each.age_s === null ? "no tick yet" : `${span(each.age_s * 1000)} ago`, each.late ? badge("silent", "bad") : badge("in time", "good")])));
        if (!metrics) return more.replaceChildren(el("p", { class: "about" }, "The admin key also shows queues, alarms and the ledger of all tenants here."));
        const gaps = metrics.tocsin_ledger_gap.filter((each) => each.value);
        const alarms = metrics.tocsin_lease_alarm.filter((each) => each.value);
        more.replaceChildren(
          table("Queues", ["queue", "messages", ""], metrics.tocsin_queue_messages.map(({ labels, value }) => [labels.queue, count(value), labels.queue.endsWith("-poison") && value ? badge("poison", "bad") : ""])),
          el("p", { class: "sum" }, "Ledger gap of all tenants: ", gaps.length ? gaps.map(({ labels, value }) => badge(`${labels.tenant}: ${count(value)}`, "bad")) : badge("0", "good"), " ",
            alarms.map(({ labels }) => badge(`${labels.tenant} ${labels.fleet}: ${labels.alarm}`, "bad"))));
      },
    };
  },
};
