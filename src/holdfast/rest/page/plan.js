/* The plan as a graph: vertices as boxes with what they do now, and the ways of records between them. */

import { h } from "./dom.js";
import { bytes, count, duration, percent, rate, short, watermark } from "./format.js";
import { curve, layout } from "./layout.js";
import { empty, meter, problem, section, table } from "./parts.js";

const HEIGHT = 116;
const WIDTHS = { least: 164, most: 250 };
const GAP = 84;
const GAP_DOWN = 56;
const SPACE = 18;
const NARROW = 640;
const MARGIN = 8;
const LINE = 12;
/** a table of metrics has a column for each of so many subtasks */
const SHOWN_SUBTASKS = 8;
/** how busy a subtask must be before the others' idleness counts as skew */
const SKEW_BUSY = 0.7;

const observer = new ResizeObserver(([entry]) => entry.target.holdfastResized?.());

export function refresh(job) {
  if (job.ui.vertex) job.load("vertex", `vertices/${job.ui.vertex}`);
}

export function view(job) {
  const nodes = job.details.plan.nodes;
  if (!nodes.length) return empty("The plan is being made.");
  const chosen = job.ui.vertex && nodes.find((node) => node.id === job.ui.vertex);
  return [
    h("div", { class: "plan scroll", key: "plan", tabindex: 0, role: "region", "aria-label": "Plan",
      made: (node) => watch(node, job) }, graph(job, nodes)),
    chosen ? details(job, chosen)
      : h("p", { class: "hint", key: "hint" }, "Choose a box to see its operators and subtasks."),
  ];
}

/** The graph takes the room that there is, and goes from top to bottom where there is little. */
function watch(node, job) {
  node.holdfastResized = () => {
    if (job.ui.room !== node.clientWidth) {
      job.ui.room = node.clientWidth;
      job.draw();
    }
  };
  observer.observe(node);
}

/** The plan changes seldom, and figures often. */
function placed(job, nodes) {
  const room = (job.ui.room ?? innerWidth) - 4 * MARGIN;
  const made = JSON.stringify([room, nodes.map((node) => [node.id, node.level, node.inputs])]);
  if (job.ui.layout?.made !== made) {
    const vertical = room < NARROW;
    const box = boxWidth(nodes, room, vertical);
    const sizes = { width: box, height: HEIGHT, gap: vertical ? GAP_DOWN : GAP, space: SPACE, vertical };
    job.ui.layout = { made, vertical, box, ...layout(nodes, sizes) };
  }
  return job.ui.layout;
}

/** As wide as the boxes can be that stand side by side, within bounds. */
function boxWidth(nodes, room, vertical) {
  const layers = Object.values(Object.groupBy(nodes, (node) => node.level));
  const abreast = vertical ? Math.max(...layers.map((layer) => layer.length)) : layers.length;
  const share = Math.floor((room - (abreast - 1) * (vertical ? SPACE : GAP)) / abreast);
  return Math.min(WIDTHS.most, Math.max(WIDTHS.least, share));
}

function graph(job, nodes) {
  const { width, height, boxes, edges, vertical, box } = placed(job, nodes);
  const size = { width: width + 2 * MARGIN, height: height + 2 * MARGIN };
  return h("div", { class: "graph", style: { width: `${size.width}px`, height: `${size.height}px` } },
    h("svg", { ...size, viewBox: `${-MARGIN} ${-MARGIN} ${size.width} ${size.height}`, "aria-hidden": "true" },
      h("defs", null, h("marker", {
        id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto",
      }, h("path", { d: "M0 0 8 4 0 8z" }))),
      joined(edges).map((edge) => drawnEdge(edge, vertical))),
    nodes.map((node) => vertexBox(job, node, { ...boxes.get(node.id), width: box })));
}

/** Edges between the same two boxes are one line with all their labels. */
function joined(edges) {
  const lines = new Map();
  for (const { from, to, input, points } of edges) {
    const line = lines.get(from + to) ?? { points, labels: new Set(), key: from + to };
    line.labels.add(input.ship_strategy);
    if (input.tag) line.labels.add(input.tag);
    lines.set(from + to, line);
  }
  return [...lines.values()];
}

function drawnEdge({ key, points, labels }, vertical) {
  const [from, to] = points.slice(-2);
  const [x, y] = [(from.x + to.x) / 2, (from.y + to.y) / 2];
  return h("g", { key },
    h("path", { class: "edge", d: curve(points, vertical), "marker-end": "url(#arrow)" }),
    [...labels].map((label, line) => h("text", { x, y: y + 4 + LINE * line, "text-anchor": "middle" }, label)));
}

function vertexBox(job, node, { x, y, width }) {
  const vertex = job.vertex(node.id);
  const now = vertex.now;
  const chosen = job.ui.vertex === node.id;
  const busy = now["busy-ms-per-second"] / 1000;
  const choose = () => {
    job.ui.vertex = chosen ? null : node.id;
    delete job.answers.vertex;
    refresh(job);
    job.draw();
  };
  return h("button", {
    key: node.id, type: "button", class: `vertex ${now["backpressure-level"]}${isSkewed(now) ? " skewed" : ""}`, "aria-pressed": String(chosen),
    title: node.description,
    style: { left: `${x + MARGIN}px`, top: `${y + MARGIN}px`, width: `${width}px`, height: `${HEIGHT}px` },
    on: { click: choose },
  },
  h("span", { class: "name" }, node.description),
  h("span", { class: "parallelism", title: "Parallelism" }, `×${node.parallelism}`),
  h("span", { class: "figures" },
    h("span", null, h("i", null, "in "), rate(now["records-in-per-second"])),
    h("span", null, h("i", null, `${isSink(job, node) ? "wrote" : "out"} `), rate(leaving(now)))),
  h("span", { class: "mark" }, h("i", null, "watermark "), watermark(now.watermark, job.details.now)),
  h("span", { class: "share" }, meter(now), h("span", null, busyText(busy, now))));
}

/** Whether records leave it only for outside of the job. */
function isSink(job, node) {
  const goesOn = job.details.plan.nodes.some((other) => other.inputs.some((input) => input.id === node.id));
  return !goesOn && node.operators.some((op) => op.sink);
}

/** Records per second that leave a vertex: for other vertices, and for outside of the job. */
function leaving(now) {
  return now["records-out-per-second"] + now["records-written-per-second"];
}

function busyText(busy, now) {
  const blocked = now["backpressured-ms-per-second"] / 1000;
  if (blocked > busy) return `${percent(blocked)} blocked`;
  return isSkewed(now) ? `${percent(busy)}, others ${percent(othersBusy(now))}` : `${percent(busy)} busy`;
}

function othersBusy(now) {
  return now["others-busy-ms-per-second"] / 1000;
}

/** Whether one subtask is at its limit while the others have little to do. */
function isSkewed(now) {
  const busy = now["busy-ms-per-second"] / 1000;
  return now["busiest-subtask"] !== null && busy >= SKEW_BUSY && othersBusy(now) <= busy / 2;
}

/** What the details of a vertex say about its skew. */
function skewText(job, node, subtasks) {
  const now = job.vertex(node.id).now;
  if (!isSkewed(now)) return null;
  const rates = subtasks.map((one) => one.now["records-in-per-second"]);
  const share = rates[now["busiest-subtask"]] / rates.reduce((sum, one) => sum + one, 0);
  return h("p", { class: "skew" },
    `Skewed: subtask ${now["busiest-subtask"] + 1} is ${percent(now["busy-ms-per-second"] / 1000)} busy`,
    share > 0 ? ` and gets ${percent(share)} of the records` : "",
    `; the others are ${percent(othersBusy(now))} busy on average. A few keys have most of the records, or cost most of the time.`);
}

function details(job, node) {
  const answer = job.answers.vertex;
  const subtasks = answer?.id === node.id ? answer.subtasks : null;
  return h("div", { class: "panel", key: node.id },
    section(node.description,
      table("Operators", [
        ["Operator", (op) => op.name],
        ["Kind", (op) => op.kind],
        ["Keyed", (op) => (op.keyed ? "yes" : "no")],
        ["Uid", (op) => h("code", null, op.id)],
        node.operators.some((op) => op.sink) && ["Records written", (op) => (op.sink ? count(answer?.written?.[op.id]) : ""), "number"],
      ].filter(Boolean), node.operators, { key: (op) => op.id })),
    problem(job.answers["vertex problem"]),
    subtasks && answer.metrics.length ? metrics(node, answer) : null,
    subtasks && section("Subtasks", skewText(job, node, subtasks), table("Subtasks", columns(job), subtasks, { key: (one) => one.subtask })));
}

/** What functions count, by subtask. */
function metrics(node, { metrics: found, subtasks }) {
  const name = (metric) => node.operators.find((op) => op.id === metric.operator)?.name;
  const value = (one) => (one !== null && typeof one === "object" ? spread(one) : typeof one === "number" ? count(one) : one ?? "–");
  return section("Metrics of functions", table("Metrics of functions", [
    ["Operator", name],
    ["Metric", (metric) => h("code", null, metric.name)],
    ["All subtasks", (metric) => (metric.values.every((one) => typeof one === "number" || one === null)
      ? count(metric.values.reduce((sum, one) => sum + (one ?? 0), 0)) : ""), "number"],
    ...subtasks.slice(0, SHOWN_SUBTASKS).map((one) =>
      [`Subtask ${one.subtask + 1}`, (metric) => value(metric.values[one.subtask]), "number"]),
  ], found, { key: (metric) => `${metric.operator} ${metric.name}` }));
}

function spread({ count: times, sum, min, max }) {
  return times ? `${count(times)} × ${short(sum / times)} (${short(min)} – ${short(max)})` : "–";
}

function columns(job) {
  return [
    ["Subtask", (one) => one.subtask + 1, "number"],
    ["Records in", (one) => count(one.metrics["read-records"]), "number"],
    ["Bytes in", (one) => bytes(one.metrics["read-bytes"]), "number"],
    ["Records out", (one) => count(one.metrics["write-records"]), "number"],
    ["Bytes out", (one) => bytes(one.metrics["write-bytes"]), "number"],
    ["Written", (one) => count(one.now["records-written"]), "number"],
    ["Now in", (one) => rate(one.now["records-in-per-second"]), "number"],
    ["Watermark", (one) => watermark(one.watermark, job.details.now), "number"],
    ["Load", (one) => meter(one.now)],
    ["Busy", (one) => duration(one.metrics["accumulated-busy-time"]), "number"],
    ["Back-pressured", (one) => duration(one.metrics["accumulated-backpressured-time"]), "number"],
    ["Idle", (one) => duration(one.metrics["accumulated-idle-time"]), "number"],
    ["Worker", (one) => h("code", null, one["taskmanager-id"])],
  ];
}
