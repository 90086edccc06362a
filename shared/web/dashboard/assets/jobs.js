// The panel of bulk jobs: it is shown only while the tenant has some. A click opens the progress or the report of a job.

import { Refused, all, call, enc } from "./api.js";
import { asking, badge, el, moment, plural, problem, table, tell } from "./dom.js";
import { followJob, report } from "./bulk.js";

const MOST = 100;
const SHOWN = 5;
const COLOURS = { counting: "planned", counted: "warn", running: "planned", done: "good" };
const OPEN = ["counting", "counted", "running"];

export const jobs = {
  id: "jobs", title: "Bulk jobs", view: "events", needs: "events", rare: true, every: (ctx) => (ctx.jobsRun ? 5000 : 30_000),
  still: (data) => JSON.stringify(data),
  async load(ctx, signal) {
    const { items } = await all("v1/jobs", ctx.query, signal, MOST, 2);
    // Jobs that were cancelled before they changed anything are left out.
    const found = items.filter((job) => job.started || job.state === "running").sort((one, other) => other.created.localeCompare(one.created));
    ctx.jobsRun = found.some((job) => job.state === "running");
    return found.filter((job) => job.state === "running").concat(found.filter((job) => job.state !== "running").slice(0, SHOWN));
  },
  empty: (found) => (found.length ? null : "There are no bulk jobs."),
  build(body, ctx) {
    const list = el("div", {});
    body.append(list);
    const openJob = async (id) => {
      const [wanted, { query }] = [asking(), ctx];
      try {
        const job = await call("GET", `v1/jobs/${enc(id)}`, { query });
        if (wanted()) followJob(ctx, job, () => {}, query);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        tell(problem(error));
      }
    };
    return {
      show(found) {
        list.replaceChildren(table("Bulk jobs", ["job", "state", "begun", "result"], found.map((job) => [
          el("button", { type: "button", class: "link", "data-keep": `job ${job.id}`, title: job.id, onclick: () => openJob(job.id) }, `${job.action} ${plural(job.count, "event")}`),
          badge(job.failed ? `${job.state}, with failures` : job.state, job.failed ? "bad" : COLOURS[job.state] ?? ""), moment(job.started ?? job.created), OPEN.includes(job.state) ? "–" : report(job)])));
      },
    };
  },
};
