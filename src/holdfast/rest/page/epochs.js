/* Epochs over time: how long each took, by the numbered steps of the protocol, and what it read. */

import { bars, legend } from "./chart.js";
import { h } from "./dom.js";
import { bytes, count, duration, short, time } from "./format.js";
import { empty, section, table } from "./parts.js";

const SHOWN = 200;
const SHOWN_NARROW = 80;
const LISTED = 20;
/** the steps that subtasks and the driver tell of, in their order; the rest is Spark's */
const STEPS = [
  ["trigger", "1 trigger"],
  ["load", "2 load"],
  ["notify", "3 notify"],
  ["process", "4 process"],
  ["time", "4 timers"],
  ["flush", "4 flush"],
  ["snapshot", "5 snapshot"],
  ["persist", "6 persist"],
  ["acknowledge", "7 acknowledge"],
  ["agree", "8 agree"],
  ["deliver", "8 deliver"],
  ["complete", "9 complete"],
  ["commit", "10 commit"],
];
/** the same by their numbers: what has the same number is one part of a bar, and one column */
const NUMBERED = [
  ["trigger", "1 trigger", ["trigger"]],
  ["load", "2 load", ["load"]],
  ["notify", "3 notify", ["notify"]],
  ["process", "4 process", ["process", "time", "flush"]],
  ["snapshot", "5 snapshot", ["snapshot"]],
  ["persist", "6 persist", ["persist"]],
  ["acknowledge", "7 acknowledge", ["acknowledge"]],
  ["agree", "8 agree", ["agree", "deliver"]],
  ["complete", "9 complete", ["complete"]],
  ["commit", "10 commit", ["commit"]],
];
const REST = ["rest", "rest: scheduling, shuffle"];
/** what the driver does before and after the Spark job, whose time `duration` is */
const OUTSIDE = ["trigger", "agree", "deliver", "complete", "commit"];

export function view(job) {
  if (!job.epochs.length) return empty("No epoch has ended yet.");
  const slots = innerWidth < 640 ? SHOWN_NARROW : SHOWN;
  const items = job.epochs.slice(-slots);
  const chosen = items.find((one) => one.epoch === job.ui.epoch) ?? null;
  const select = (one) => {
    job.ui.epoch = one?.epoch;
    job.draw();
  };
  const chart = { items, slots, selected: chosen, select, describe };
  return [
    section("Epochs over time",
      bars({ ...chart, name: "Duration", parts: steps, label: (s) => duration(1000 * s) }),
      legend([...NUMBERED, REST]),
      bars({ ...chart, name: "Records read by sources", parts: (one) => [["read", one["records-read"]]], label: short }),
      h("p", { class: "detail", "aria-live": "off" }, chosen ? describe(chosen) : spread(items))),
    section("The last ones", table("Epochs", COLUMNS, items.slice(-LISTED).reverse(), { key: (one) => one.epoch, dense: true })),
  ];
}

const sum = (one, names) => names.reduce((total, name) => total + (one.steps[name] ?? 0), 0);

/** How long an epoch took, with what the driver did around its Spark job; in milliseconds. */
const took = (one) => 1000 * (one.duration + sum(one, OUTSIDE));

/** The parts of that, in seconds. Those of subtasks are the longest of any, so that they may overlap. */
function steps(one) {
  const inside = sum(one, STEPS.map(([step]) => step)) - sum(one, OUTSIDE);
  const scale = inside > one.duration ? one.duration / inside : 1;
  return [
    ...NUMBERED.map(([kind, , names]) => [kind, sum(one, names) * (OUTSIDE.includes(kind) ? 1 : scale)]),
    ["rest", Math.max(0, one.duration - inside)],
  ];
}

function describe(one) {
  const parts = STEPS.filter(([step]) => one.steps[step])
    .map(([step, name]) => `${name} ${duration(1000 * one.steps[step])}`);
  const carried = one.checkpoint === null ? [] : [`checkpoint ${one.checkpoint}`];
  return [
    `epoch ${one.epoch}`, time(one["start-time"]), duration(took(one)),
    `${count(one["records-read"])} read`, ...parts, ...carried,
  ].join(" · ");
}

function spread(items) {
  const sorted = items.map(took).sort((a, b) => a - b);
  const at = (share) => duration(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]);
  return `the last ${items.length}: half within ${at(0.5)}, 95 % within ${at(0.95)}, the longest ${at(1)}`;
}

const COLUMNS = [
  ["Epoch", (one) => one.epoch, "number"],
  ["Started", (one) => time(one["start-time"]), "when"],
  ["Took", (one) => duration(took(one)), "number"],
  ["Read", (one) => count(one["records-read"]), "number"],
  ["Records", (one) => count(one.records), "number"],
  ...NUMBERED.map(([, name, names]) => [name, (one) => duration(1000 * sum(one, names)), "number"]),
  ["State", (one) => bytes(one["state-bytes"]), "number"],
  ["Checkpoint", (one) => one.checkpoint ?? "", "number"],
];
