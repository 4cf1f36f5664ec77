/* How a job ended, and where it is shown when its server has gone with it. */

import { h } from "./dom.js";
import { time } from "./format.js";

const HISTORY_PAGE = "http://127.0.0.1:8082/";
const SAID = {
  FINISHED: ["good", "The job has finished", "It ended as it should, and all of its results are committed."],
  CANCELED: ["done", "The job was cancelled", "It can continue from its last checkpoint, if that one was retained."],
  FAILED: ["bad", "The job has failed", "The tab Exceptions says why."],
  SUSPENDED: ["warn", "The process of the job ended without it", "The job continues when its program is started again."],
};

/** What is said above the tabs of a job that has ended, or whose server does not answer any more. */
export function ending(job) {
  const { state, jid } = job.details;
  const [tone, title, more] = SAID[state] ?? ["warn", "The server of the job does not answer", "If its process has ended, so has the server."];
  if (!(state in SAID) && !job.gone) return null;
  const at = job.ended ? `, ${time(job.details["end-time"])}` : "";
  return h("section", { class: `ending ${tone}`, key: "ending", role: "status" },
    h("p", null, h("b", null, `${title}${at}. `), more),
    job.site.features["web-history"] ? null : afterwards(job, jid));
}

function afterwards(job, jid) {
  const directory = job.details["history-directory"];
  if (directory === null) {
    return h("p", { class: "hint" }, "Its history is not kept: the job has no checkpoint directory (execution.checkpointing.dir).");
  }
  return h("p", { class: "hint" },
    job.gone ? "The server has ended. To see the job again, run " : "The server ends with the last job of the program. Afterwards, run ",
    h("code", { class: "command" }, `holdfast history ${quoted(directory)}`), " and open ",
    h("code", null, `${HISTORY_PAGE}#/jobs/${jid}`), ".");
}

/** A path as a shell takes it. */
function quoted(path) {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
