/* The list of jobs. */

import { get } from "./api.js";
import { h, render } from "./dom.js";
import { count, duration, time } from "./format.js";
import { empty, status, table } from "./parts.js";

const COLUMNS = [
  ["Job", (job) => h("a", { href: `#/jobs/${job.jid}` }, job.name)],
  ["Status", (job) => status(job.state)],
  ["Started", (job) => time(job["start-time"]), "when"],
  ["Ran for", (job) => duration(job.duration), "number"],
  ["Subtasks", (job) => count(job.tasks.total), "number"],
  ["Engine", (job) => job.engine],
  ["Id", (job) => h("code", null, job.jid.slice(0, 8))],
];

export function openJobs(frame, site) {
  let open = true;
  frame.title("Jobs");
  const pause = Math.max(1000, site["refresh-interval"]);

  async function refresh() {
    if (!document.hidden) {
      try {
        draw((await get("jobs/overview")).jobs);
        frame.link("good", "live");
      } catch (problem) {
        frame.link("gone", "no answer");
      }
    }
    if (open) setTimeout(refresh, pause);
  }

  function draw(jobs) {
    if (!open) return;
    render(frame.content, h("section", null,
      h("h1", null, site.features["web-history"] ? "Jobs on file" : "Jobs"),
      jobs.length ? table("Jobs", COLUMNS, jobs, { key: (job) => job.jid }) : empty("There are no jobs here.")));
  }

  refresh();
  return { close: () => { open = false; }, go() {} };
}
