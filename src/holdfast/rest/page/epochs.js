/* Epochs over time: how long each took, by the numbered steps of the protocol, and what it read. */

import { bars, legend } from "./chart.js";
import { h } from "./dom.js";
import { bytes, count, duration, short, time } from "./format.js";
import { empty, section, table } from "./parts.js";

const SHOWN = 200;
const SHOWN_NARROW = 80;
const LISTED = 20;
/** the steps that subtasks tell of, in their order; the rest is Spark's, and the driver's */
const STEPS = [
  ["load", "2 load"],
  ["process", "4 process"],
  ["time", "4 timers"],
  ["snapshot", "5 snapshot"],
  ["persist", "6 persist"],
];
const REST = ["rest", "rest: scheduling, shuffle, 1, 7–8"];

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
      legend([...STEPS, REST]),
      bars({ ...chart, name: "Records read by sources", parts: (one) => [["read", one["records-read"]]], label: short }),
      h("p", { class: "detail", "aria-live": "off" }, chosen ? describe(chosen) : spread(items))),
    section("The last ones", table("Epochs", COLUMNS, items.slice(-LISTED).reverse(), { key: (one) => one.epoch })),
  ];
}

/** The parts of an epoch's duration. Each is the longest of any subtask, so that they may overlap. */
function steps(one) {
  const parts = STEPS.map(([step]) => [step, one.steps[step] ?? 0]);
  const sum = parts.reduce((total, [, seconds]) => total + seconds, 0);
  const scale = sum > one.duration ? one.duration / sum : 1;
  return [...parts.map(([step, seconds]) => [step, seconds * scale]), ["rest", Math.max(0, one.duration - sum)]];
}

function describe(one) {
  const parts = STEPS.filter(([step]) => one.steps[step])
    .map(([step, name]) => `${name} ${duration(1000 * one.steps[step])}`);
  const carried = one.checkpoint === null ? [] : [`checkpoint ${one.checkpoint}`];
  return [
    `epoch ${one.epoch}`, time(one["start-time"]), duration(1000 * one.duration),
    `${count(one["records-read"])} read`, ...parts, ...carried,
  ].join(" · ");
}

function spread(items) {
  const sorted = items.map((one) => 1000 * one.duration).sort((a, b) => a - b);
  const at = (share) => duration(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]);
  return `the last ${items.length}: half within ${at(0.5)}, 95 % within ${at(0.95)}, the longest ${at(1)}`;
}

const step = (name) => [
  STEPS.find(([one]) => one === name)[1],
  (one) => duration(1000 * (one.steps[name] ?? 0)),
  "number",
];

const COLUMNS = [
  ["Epoch", (one) => one.epoch, "number"],
  ["Started", (one) => time(one["start-time"]), "when"],
  ["Took", (one) => duration(1000 * one.duration), "number"],
  ["Read", (one) => count(one["records-read"]), "number"],
  ["Records", (one) => count(one.records), "number"],
  ["Quota", (one) => count(one.quota), "number"],
  ...STEPS.map(([name]) => step(name)),
  ["State", (one) => bytes(one["state-bytes"]), "number"],
  ["Checkpoint", (one) => one.checkpoint ?? "", "number"],
];
