/* The starts of a job, why they failed, and its changes of parallelism. */

import { h } from "./dom.js";
import { count, duration, time } from "./format.js";
import { empty, problem, section, status, table } from "./parts.js";

export function refresh(job) {
  job.keep("exceptions");
}

export function view(job) {
  const { exceptions, attempts, rescales } = job.answers;
  if (!exceptions || !attempts) return problem(job.answers["exceptions problem"]) ?? empty("Asking the server …");
  const { entries, truncated } = exceptions.exceptionHistory;
  return [
    section("Exceptions",
      entries.length ? entries.map(exception) : empty("Nothing has failed."),
      truncated && h("p", { class: "hint" }, `${count(attempts.failures)} in all; older ones are forgotten.`)),
    section("Starts", table("Starts", COLUMNS, [...attempts.attempts].reverse(), { key: (one) => one.number })),
    section("Rescales",
      rescales?.length ? table("Rescales", RESCALES, rescales, { key: (one) => one.rescaleAttemptId })
        : empty("The parallelism has not changed.")),
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

/** The task slots of a rescale: all operators share them. */
export function slots(rescale) {
  return Object.values(rescale.slots)[0];
}

const CAUSES = {
  UPDATE_REQUIREMENT: "a user requested it",
  RECOVERABLE_FAILOVER: "fewer task slots",
  NEW_RESOURCE_AVAILABLE: "more task slots",
};

const RESCALES = [
  ["At", (one) => time(one.startTimestampInMillis), "when"],
  ["Reason", (one) => CAUSES[one.triggerCause] ?? one.triggerCause],
  ["Slots", (one) => `${slots(one).preRescaleSlots} → ${slots(one).postRescaleSlots}`],
  ["Wanted", (one) => slots(one).desiredSlots, "number"],
  ["Took", (one) => duration(one.duration), "number"],
  ["Result", (one) => status(one.terminalState ?? "IN_PROGRESS")],
  ["", (one) => one.failure ?? ""],
];

const PARTS = [
  ["stop", "stop"], ["delay", "delay"], ["slots", "task slots"], ["load", "load state"], ["first-result", "first result"],
];

/** How long a start took, and its parts as far as they are known. */
function took(one) {
  const start = one["start-seconds"];
  if (!start) return "";
  const known = PARTS.filter(([part]) => start[part] !== null);
  const whole = known.reduce((sum, [part]) => sum + start[part], 0);
  const parts = known.filter(([part]) => start[part] > 0).map(([part, name]) => `${name} ${duration(1000 * start[part])}`);
  return [h("div", null, duration(1000 * whole)), h("div", { class: "hint" }, parts.join(", "))];
}

const COLUMNS = [
  ["Start", (one) => one.number + 1],
  ["At", (one) => time(one["start-time"]), "when"],
  ["Began", (one) => one.origin],
  ["Took", took],
  ["Path", (one) => (one.path ? h("code", null, one.path) : "")],
];
