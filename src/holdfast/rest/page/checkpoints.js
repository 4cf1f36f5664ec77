/* Checkpoints: how many, how long and how large; each of them, down to its subtasks. */

import { get } from "./api.js";
import { bars, legend } from "./chart.js";
import { h } from "./dom.js";
import { bytes, count, duration, time } from "./format.js";
import { empty, fact, facts, problem, section, status, table } from "./parts.js";

const SLOTS = 60;

export function refresh(job) {
  job.keep("checkpoints");
  job.keep("checkpoints/config", "never changes");
}

export function view(job) {
  const answer = job.answers.checkpoints;
  if (!answer) return problem(job.answers["checkpoints problem"]) ?? empty("Asking the server …");
  const { counts, history, summary, latest } = answer;
  return [
    section("Checkpoints", facts(
      fact("Completed", count(counts.completed)),
      fact("In progress", count(counts.in_progress)),
      fact("Failed", count(counts.failed)),
      fact("Restored", count(counts.restored)),
      fact("Last one", latest.completed ? time(latest.completed.latest_ack_timestamp) : "–"),
      fact("Last savepoint", latest.savepoint ? time(latest.savepoint.latest_ack_timestamp) : "–"),
      fact("Restored from", latest.restored ? what(latest.restored) : "–"))),
    history.length ? [charts(job, history), percentiles(summary), listed(job, history)]
      : empty("There was none yet."),
    settings(job.answers["checkpoints/config"]),
  ];
}

function what(one) {
  return `${one.is_savepoint ? "savepoint" : "checkpoint"} ${one.id}`;
}

function kind(one) {
  if (one.status !== "COMPLETED") return one.status === "FAILED" ? "failed" : "progress";
  return one.is_savepoint ? "savepoint" : "completed";
}

function charts(job, history) {
  const items = history.slice(0, SLOTS).reverse();
  const chosen = items.find((one) => one.id === job.ui.checkpoint) ?? null;
  const select = (one) => {
    job.ui.checkpoint = one?.id;
    job.draw();
  };
  const chart = { items, slots: SLOTS, selected: chosen, select, describe };
  return h("section", { key: "charts" },
    h("div", { class: "pair" },
      bars({ ...chart, name: "Duration", parts: (one) => [[kind(one), one.end_to_end_duration]], label: duration }),
      bars({ ...chart, name: "State, and what is new of it", parts: sizes, label: bytes, base: 1024 })),
    legend([["completed", "completed"], ["savepoint", "savepoint"], ["failed", "failed"], ["progress", "in progress"],
      ["old", "was there before"]]),
    h("p", { class: "detail" }, chosen ? describe(chosen) : "Point at a bar to read it."));
}

function sizes(one) {
  const fresh = Math.min(one.checkpointed_size, one.state_size);
  return [[kind(one), fresh], ["old", one.state_size - fresh]];
}

function describe(one) {
  const said = [what(one), one.status.toLowerCase(), time(one.trigger_timestamp), duration(one.end_to_end_duration)];
  if (one.status === "COMPLETED") said.push(`${bytes(one.state_size)}, ${bytes(one.checkpointed_size)} new`);
  if (one.failure_message) said.push(one.failure_message.split("\n")[0]);
  return said.join(" · ");
}

function percentiles(summary) {
  const rows = [
    ["Duration", summary.end_to_end_duration, duration],
    ["State", summary.state_size, bytes],
    ["New of it", summary.checkpointed_size, bytes],
  ];
  const names = ["min", "avg", "p50", "p90", "p95", "p99", "p999", "max"];
  return section("Percentiles", table("Percentiles", [
    ["", ([name]) => h("b", null, name)],
    ...names.map((name) => [name, ([, numbers, say]) => say(numbers[name]), "number"]),
  ], rows, { key: ([name]) => name }));
}

function listed(job, history) {
  const open = job.ui.openCheckpoint;
  const toggle = (one) => {
    job.ui.openCheckpoint = open === one.id ? null : one.id;
    if (open !== one.id) loadParts(job, one);
    job.draw();
  };
  const columns = [
    ["Id", (one) => h("button", {
      type: "button", class: "fold", "aria-expanded": String(open === one.id), on: { click: () => toggle(one) },
    }, one.id), "number"],
    ["Status", (one) => status(one.status)],
    ["Kind", (one) => (one.is_savepoint ? "savepoint" : "checkpoint")],
    ["Triggered", (one) => time(one.trigger_timestamp), "when"],
    ["Took", (one) => duration(one.end_to_end_duration), "number"],
    ["State", (one) => bytes(one.state_size), "number"],
    ["New", (one) => bytes(one.checkpointed_size), "number"],
    ["Acknowledged", (one) => `${one.num_acknowledged_subtasks}/${one.num_subtasks}`, "number"],
  ];
  return section("History", table("Checkpoints", columns, history, {
    key: (one) => one.id,
    tall: true,
    after: (one) => open === one.id && h("tr", { key: `more ${one.id}` },
      h("td", { colspan: columns.length, class: "more" }, more(job, one))),
  }));
}

/** Ask for the parts of all vertices in a checkpoint. */
async function loadParts(job, one) {
  const base = `${job.path}/checkpoints/details/${one.id}`;
  delete job.answers.parts;
  try {
    const { tasks } = await get(base);
    const parts = await Promise.all(Object.keys(tasks).map(async (id) => [id, await get(`${base}/subtasks/${id}`)]));
    job.answers.parts = { id: one.id, parts };
  } catch (problem) {
    job.answers.parts = { id: one.id, parts: [], problem: problem.message };
  }
  job.draw();
}

/** A figure of those that have acknowledged; of the others Flink's API has none. */
const figure = (title, value) => [title, (one) => (one.status === "completed" ? value(one) : "–"), "number"];
const ms = (title, value) => figure(title, (one) => duration(value(one)));
const SUBTASK = [
  ["Vertex", (one) => (one.index === 0 ? one.vertex : "")],
  ["Subtask", (one) => one.index + 1, "number"],
  ["Acknowledged", (one) => (one.status === "completed" ? "yes" : "no")],
  ms("From the trigger", (one) => one.end_to_end_duration),
  ms("Start delay", (one) => one.start_delay),
  ms("Alignment", (one) => one.alignment.duration),
  ms("Sync", (one) => one.checkpoint.sync),
  ms("Async", (one) => one.checkpoint.async),
  figure("State", (one) => bytes(one.state_size)),
  figure("New", (one) => bytes(one.checkpointed_size)),
];

function more(job, one) {
  const known = job.answers.parts?.id === one.id ? job.answers.parts : null;
  const subtasks = known?.parts.flatMap(([id, part]) =>
    part.subtasks.map((subtask) => ({ ...subtask, vertex: job.vertex(id)?.name ?? id }))) ?? [];
  return h("div", { class: "parts" },
    one.failure_message && h("pre", { class: "problem" }, one.failure_message),
    one.external_path && h("p", null, h("code", null, one.external_path), one.discarded ? " (no longer there)" : ""),
    problem(known?.problem),
    subtasks.length ? table(`Subtasks of checkpoint ${one.id}`, SUBTASK, subtasks)
      : known && !one.failure_message && h("p", { class: "hint" }, "Of this one no subtasks are remembered."));
}

function settings(told) {
  if (!told) return null;
  return section("Settings", facts(
    fact("Mode", told.mode.replaceAll("_", " ")),
    fact("Interval", told.interval > 0 ? duration(told.interval) : "–"),
    fact("Timeout", duration(told.timeout)),
    fact("Pause", duration(told.min_pause)),
    fact("Tolerated failures", count(told.tolerable_failed_checkpoints)),
    fact("Backend", told.state_backend),
    fact("Storage", told.checkpoint_storage),
    fact("When cancelled", told.externalization.delete_on_cancellation ? "deleted" : "kept")));
}
