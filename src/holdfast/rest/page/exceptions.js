/* The starts of a job, and why they failed. */

import { h } from "./dom.js";
import { count, time } from "./format.js";
import { empty, problem, section, table } from "./parts.js";

export function refresh(job) {
  job.keep("exceptions");
}

export function view(job) {
  const { exceptions, attempts } = job.answers;
  if (!exceptions || !attempts) return problem(job.answers["exceptions problem"]) ?? empty("Asking the server …");
  const { entries, truncated } = exceptions.exceptionHistory;
  return [
    section("Exceptions",
      entries.length ? entries.map(exception) : empty("Nothing has failed."),
      truncated && h("p", { class: "hint" }, `${count(attempts.failures)} in all; older ones are forgotten.`)),
    section("Starts", table("Starts", COLUMNS, [...attempts.attempts].reverse(), { key: (one) => one.number })),
  ];
}

function exception(entry) {
  const lines = entry.stacktrace.split("\n");
  return h("details", {
    class: "fold-out exception", key: `${entry.attempt} ${entry.timestamp}`, made: (node) => { node.open = true; },
  },
    h("summary", null,
      h("b", null, entry.exceptionName),
      entry.taskName && h("span", null, entry.taskName),
      h("span", { class: "hint" }, `${time(entry.timestamp)}, start ${entry.attempt + 1}`)),
    h("pre", { tabindex: lines.length > 20 ? 0 : undefined }, entry.stacktrace));
}

const COLUMNS = [
  ["Start", (one) => one.number + 1],
  ["At", (one) => time(one["start-time"]), "when"],
  ["Began", (one) => one.origin],
  ["Path", (one) => (one.path ? h("code", null, one.path) : "")],
];
