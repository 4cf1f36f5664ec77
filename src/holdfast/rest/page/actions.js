/* What can be done to a job. What ends it is asked about first. */

import { carryOut, Refusal, send } from "./api.js";
import { ask, note } from "./dialog.js";
import { h } from "./dom.js";

const DIRECTORY = {
  name: "directory", label: "Directory", type: "text",
  hint: "Empty for the one of “execution.checkpointing.savepoint-dir”; otherwise one below it.",
};

export function actions(job) {
  if (!job.acts) return null;
  const button = (text, act, kind) =>
    h("button", { type: "button", class: kind, on: { click: () => act(job) } }, text);
  return h("div", { class: "actions", role: "group", "aria-label": "What can be done to the job" },
    button("Checkpoint", checkpoint),
    button("Savepoint…", savepoint),
    button("Rescale…", rescale),
    button("Stop…", stop),
    button("Cancel…", cancel, "danger"));
}

/** Do something, and say how it goes. */
async function tell(id, begins, act, ended) {
  note(id, "busy", begins);
  try {
    note(id, "good", ended(await act()));
  } catch (problem) {
    // a server ends with the last job of its process
    const gone = "The server does not answer any more. If the job was to end, it has.";
    note(id, "bad", problem instanceof Refusal ? problem.message : gone);
  }
}

function checkpoint(job) {
  const path = `${job.path}/checkpoints`;
  return tell("checkpoint", "Taking a checkpoint …", () => carryOut("POST", path, {}, path),
    ({ checkpointId }) => `Checkpoint ${checkpointId} is complete.`);
}

async function savepoint(job) {
  const given = await ask({
    title: "Take a savepoint?",
    text: "The job goes on meanwhile, and afterwards.",
    fields: [DIRECTORY],
    confirm: "Take a savepoint",
  });
  if (!given) return;
  const path = `${job.path}/savepoints`;
  const body = given.directory ? { "target-directory": given.directory } : {};
  await tell("savepoint", "Taking a savepoint …", () => carryOut("POST", path, body, path),
    ({ location }) => `The savepoint is complete: ${location}`);
}

async function stop(job) {
  const given = await ask({
    title: `Stop “${job.details.name}”?`,
    text: "It ends after a savepoint, from which it can be started again.",
    fields: [
      DIRECTORY,
      {
        name: "drain", label: "Drain: windows and timers fire first", type: "checkbox",
        hint: "Only for a job that is not to go on: its results are as if the input had ended.",
      },
    ],
    confirm: "Stop the job",
    danger: true,
  });
  if (!given) return;
  const body = { drain: given.drain, ...(given.directory ? { targetDirectory: given.directory } : {}) };
  await tell("savepoint", "Taking the last savepoint …",
    () => carryOut("POST", `${job.path}/stop`, body, `${job.path}/savepoints`),
    ({ location }) => `The job has stopped. Its savepoint: ${location}`);
}

async function cancel(job) {
  const given = await ask({
    title: `Cancel “${job.details.name}”?`,
    text: "It ends after the running epoch, without a savepoint. What came after its last checkpoint is lost to it.",
    confirm: "Cancel the job",
    danger: true,
  });
  if (!given) return;
  await tell("cancel", "Cancelling …", () => send("PATCH", `${job.path}?mode=cancel`),
    () => "The job was asked to end.");
}

async function rescale(job) {
  const widths = job.details.vertices.map((vertex) => vertex.parallelism);
  const given = await ask({
    title: "Rescale the job?",
    text: "It takes a checkpoint, and goes on from there with the new parallelism. " +
      "Operators for which the program sets one keep theirs.",
    fields: [{
      name: "parallelism", label: "Parallelism", type: "number", required: true,
      min: 1, max: job.details.maxParallelism, value: Math.max(...widths),
      hint: `From 1 to ${job.details.maxParallelism}.`,
    }],
    confirm: "Rescale",
  });
  if (!given) return;
  const path = `${job.path}/rescaling`;
  await tell("rescale", `Rescaling to ${given.parallelism} …`,
    () => carryOut("PATCH", `${path}?parallelism=${given.parallelism}`, undefined, path),
    () => `The job runs with parallelism ${given.parallelism}.`);
}
