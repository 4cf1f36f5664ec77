/* What checkpoints hold: operators, states and sizes; what a key has now; how two checkpoints differ. */

import { get } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, time } from "./format.js";
import { choice, empty, problem, section, table } from "./parts.js";

export function refresh(job) {
  job.keep("checkpoints");
  if (!job.answers.state && !job.ui.reading) read(job);
}

async function read(job, checkpoint) {
  job.ui.reading = true;
  await job.load("state", "state", { checkpoint });
  job.ui.reading = false;
  job.draw();
}

export function view(job) {
  const state = job.answers.state;
  const failed = job.answers["state problem"];
  if (!state) return failed ? problem(failed) : empty("Reading the last checkpoint …");
  return [
    section("In the checkpoint", chosenCheckpoint(job, state), problem(failed), overview(state)),
    browse(job, state),
    job.acts && lookUp(job, state),
    comparison(job),
  ];
}

/** The checkpoints that are still there. */
function kept(job) {
  return (job.answers.checkpoints?.history ?? []).filter((one) => one.status === "COMPLETED" && !one.discarded);
}

function named(one) {
  return `${one.is_savepoint ? "savepoint" : "checkpoint"} ${one.id}, ${time(one.trigger_timestamp)}`;
}

function chosenCheckpoint(job, state) {
  if (state.checkpoint === null) return empty("There is no checkpoint yet.");
  const options = kept(job);
  return h("form", { class: "row", on: {
    submit: (event) => {
      event.preventDefault();
      read(job, event.target.elements.checkpoint.value || undefined);
    },
  } },
  h("p", null, `Checkpoint ${state.checkpoint}, of ${time(state.timestamp)}: ${bytes(state.size)}.`),
  choice("checkpoint", "Another one", [["", "the last one"], ...options.map((one) => [one.id, named(one)])]),
  h("button", { disabled: job.ui.reading }, job.ui.reading ? "Reading …" : "Read"));
}

function overview(state) {
  const rows = state.operators.flatMap((operator) =>
    operator.states.map((one) => ({ operator, ...one })));
  const largest = Math.max(1, ...rows.map((row) => row.bytes ?? 0));
  if (!rows.length) return state.checkpoint === null ? null : empty("No operator has state in it.");
  return table("States", [
    ["Operator", ({ operator }) => h("span", { title: operator.uid }, operator.name)],
    ["State", (row) => h("code", null, row.name, row.windowed ? " (per window)" : "")],
    ["Kind", (row) => row.kind],
    ["Type", (row) => h("code", null, row.type)],
    ["Key", (row) => (row.keyed ? h("code", null, row.operator["key-type"]) : "–")],
    ["Entries", (row) => count(row.entries), "number"],
    ["Bytes", (row) => bytes(row.bytes), "number"],
    ["", (row) => h("span", { class: "size" }, h("span", { style: { width: `${100 * (row.bytes ?? 0) / largest}%` } }))],
    ["Notes", (row) => ["expires", "pickled", "internal"].filter((trait) => row[trait]).join(", ")],
  ], rows, { key: (row) => `${row.operator.uid} ${row.name} ${row.windowed}` });
}

// Browse

const PAGE = 50;

/** The states whose entries can be shown: those of functions, and the contents of windows. */
function browsable(state) {
  return state.operators.flatMap((operator) => operator.states
    .filter((one) => !one.internal || one.name === "window-contents")
    .map((one) => ({ operator, ...one, label: stateName(operator, one) })));
}

function stateName(operator, one) {
  if (one.internal) return `${operator.name}: contents of windows`;
  return `${operator.name}: ${one.name}${one.windowed ? " (per window)" : ""}`;
}

function browse(job, state) {
  const states = browsable(state);
  if (!states.length) return null;
  const shown = job.ui.browsed;
  return section("Entries",
    h("form", { class: "row", on: {
      submit: (event) => {
        event.preventDefault();
        showPage(job, { state: states[Number(event.target.elements.browsed.value)], checkpoint: state.checkpoint, before: [], after: undefined });
      },
    } },
    choice("browsed", "Entries of", states.map((one, i) => [i, one.label])),
    h("button", null, "Show entries")),
    h("div", { role: "status" }, shown && [problem(shown.problem), shown.answer && page(job, shown)]));
}

/** Read a page of entries. `before`: where the pages before it begin, so that one can go back. */
async function showPage(job, { state, checkpoint, before, after }) {
  const query = {
    operator: state.operator.uid, state: state.name, windowed: state.keyed && !state.internal ? state.windowed : undefined,
    checkpoint, after, rows: PAGE,
  };
  const last = job.ui.browsed?.state === state ? job.ui.browsed.answer : undefined;
  try {
    job.ui.browsed = { state, checkpoint, before, after, answer: await get(`${job.path}/state/entries`, query) };
  } catch (failure) {
    job.ui.browsed = { state, checkpoint, before, after, answer: last, problem: failure.message };
  }
  job.draw();
}

function page(job, { state, checkpoint, before, after, answer }) {
  const turn = (text, to) => h("button", { type: "button", disabled: !to, on: { click: () => to && showPage(job, to) } }, text);
  const back = before.length ? { state, checkpoint, before: before.slice(0, -1), after: before.at(-1) } : null;
  const onward = answer.next && { state, checkpoint, before: [...before, after], after: answer.next };
  const columns = [
    answer.rows.some((row) => row.key !== null) && ["Key", (row) => h("code", null, row.key)],
    answer.rows.some((row) => row.window !== null) && ["Window", (row) => h("code", null, row.window)],
    answer.rows.some((row) => row.subtask !== null) && ["Subtask", (row) => row.subtask + 1, "number"],
    ["Value", (row) => h("code", { class: "value" }, row.value)],
    state.expires && !state.internal && ["Last used", (row) => used(row.accessed), "when"],
  ].filter(Boolean);
  return [
    h("p", { class: "hint" }, `${state.label} in checkpoint ${answer.checkpoint}, of ${time(answer.timestamp)}`,
      state.entries === null ? "" : `: ${count(state.entries)} entries`, `. Page ${before.length + 1}.`),
    answer.rows.length ? table("Entries", columns, answer.rows) : empty("No entries here."),
    h("div", { class: "choices pages" }, turn("Previous", back), turn("Next", onward)),
  ];
}

/** A time, or those of the elements of a list or map. */
function used(accessed) {
  return typeof accessed === "number" ? time(accessed) : JSON.stringify(accessed);
}

// Look up

function lookUp(job, state) {
  const states = state.operators.flatMap((operator) => operator.states
    .filter((one) => one.keyed && !one.internal).map((one) => ({ operator, ...one })));
  if (!states.length) return null;
  const name = (one) => `${one.operator.name}: ${one.name}${one.windowed ? " (per window)" : ""}`;
  const chosen = states[job.ui.lookedUp ?? 0] ?? states[0];
  const found = job.ui.found;
  return section("Look up a key",
    h("form", { class: "row", on: {
      submit: (event) => {
        event.preventDefault();
        const { key, window } = event.target.elements;
        find(job, chosen, key.value, window?.value);
      },
    } },
    choice("state", "State", states.map((one, i) => [i, name(one)]), {
      change: (event) => { job.ui.lookedUp = Number(event.target.value); job.draw(); },
    }),
    h("div", { class: "field" }, h("label", { for: "key" }, `Key${typed(chosen.operator)}`),
      h("input", { id: "key", name: "key", required: true, autocomplete: "off", spellcheck: "false" })),
    chosen.windowed && h("div", { class: "field" }, h("label", { for: "window" }, "Window, as [start, end]"),
      h("input", { id: "window", name: "window", required: true, autocomplete: "off" })),
    h("button", { class: "primary" }, "Look up")),
    h("div", { role: "status" }, found && [
      problem(found.problem),
      found.answer && h("div", { class: "found" },
        h("p", null, h("b", null, found.text), ` in ${name(found.state)}, as of the last epoch:`),
        found.answer.found ? h("pre", null, pretty(found.answer.value)) : empty("Nothing."))]));
}

function typed(operator) {
  return operator["key-type"] === "no type" ? "" : ` (${operator["key-type"]})`;
}

async function find(job, state, text, window) {
  const query = { operator: state.operator.uid, state: state.name, key: asKey(text, state.operator["key-type"]), window };
  try {
    job.ui.found = { text, state, answer: await get(`${job.path}/state/value`, query) };
  } catch (problem) {
    job.ui.found = { text, state, problem: problem.message };
  }
  job.draw();
}

/** A key as JSON: what is none, or stands for text, is text. */
function asKey(text, type) {
  const isText = /^(str|string)\b/i.test(type);
  try {
    const read = JSON.parse(text);
    return isText && typeof read !== "string" ? JSON.stringify(text) : text;
  } catch {
    return JSON.stringify(text);
  }
}

function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

// Compare

function comparison(job) {
  const options = kept(job).map((one) => [one.id, named(one)]);
  if (options.length < 2) return null;
  const compared = job.ui.compared;
  return section("Compare two checkpoints",
    h("form", { class: "row", on: {
      submit: (event) => {
        event.preventDefault();
        const { before, after } = event.target.elements;
        compare(job, before.value, after.value);
      },
    } },
    choice("before", "Before", [...options].reverse()),
    choice("after", "After", options),
    h("button", null, "Compare")),
    h("div", { role: "status" }, compared && [problem(compared.problem), compared.answer && differences(job, compared.answer)]));
}

async function compare(job, before, after) {
  try {
    job.ui.compared = { answer: await get(`${job.path}/checkpoints/compare/${before}/${after}`) };
  } catch (problem) {
    job.ui.compared = { problem: problem.message };
  }
  job.draw();
}

function differences(job, { before, after, states, truncated }) {
  const changed = states.filter((one) => one.added + one.removed + one.changed > 0);
  if (!changed.length) return empty(`Checkpoints ${before} and ${after} hold the same.`);
  return [
    truncated && h("p", { class: "hint" }, "Only the first changes of each state are shown."),
    changed.map((one) => h("details", { key: `${one.operator} ${one.state} ${one.windowed}`, class: "fold-out" },
      h("summary", null, h("b", null, operatorName(job, one.operator)), h("code", null, one.state),
        h("span", { class: "hint" }, `${count(one.added)} new, ${count(one.changed)} changed, ${count(one.removed)} gone`)),
      table(`Changes of ${one.state}`, [
        ["Change", (row) => row.change],
        ["Key", (row) => h("code", null, JSON.stringify(row.key))],
        one.windowed && ["Window", (row) => h("code", null, JSON.stringify(row.window))],
        ["Before", (row) => h("code", { class: "value" }, shown(row.before))],
        ["After", (row) => h("code", { class: "value" }, shown(row.after))],
      ].filter(Boolean), one.rows))),
  ];
}

function operatorName(job, uid) {
  const operators = job.details.plan.nodes.flatMap((node) => node.operators);
  return operators.find((one) => one.id === uid)?.name ?? uid;
}

function shown(value) {
  return value === null || value === undefined ? "" : JSON.stringify(value);
}
