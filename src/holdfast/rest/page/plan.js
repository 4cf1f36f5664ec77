/* The plan as a graph: vertices as boxes with what they do now, and the ways of records between them. */

import { h } from "./dom.js";
import { bytes, count, duration, percent, rate, short, watermark } from "./format.js";
import { curve, layout } from "./layout.js";
import { empty, load, problem, section, table } from "./parts.js";

const BOX = { width: 236, height: 126 };
const NARROW = 640;
const MARGIN = 8;

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

/** The graph goes from top to bottom where there is little room. */
function watch(node, job) {
  node.holdfastResized = () => {
    const vertical = node.clientWidth < NARROW;
    if (job.ui.vertical !== vertical) {
      job.ui.vertical = vertical;
      job.draw();
    }
  };
  observer.observe(node);
}

/** The plan changes seldom, and figures often. */
function placed(job, nodes) {
  const vertical = job.ui.vertical ?? innerWidth < NARROW;
  const made = JSON.stringify([vertical, nodes.map((node) => [node.id, node.level, node.inputs])]);
  if (job.ui.layout?.made !== made) {
    const gaps = { gap: vertical ? 56 : 96, space: 22, vertical };
    job.ui.layout = { made, vertical, ...layout(nodes, { ...BOX, ...gaps }) };
  }
  return job.ui.layout;
}

function graph(job, nodes) {
  const { width, height, boxes, edges, vertical } = placed(job, nodes);
  const size = { width: width + 2 * MARGIN, height: height + 2 * MARGIN };
  return h("div", { class: "graph", style: { width: `${size.width}px`, height: `${size.height}px` } },
    h("svg", { ...size, viewBox: `${-MARGIN} ${-MARGIN} ${size.width} ${size.height}`, "aria-hidden": "true" },
      h("defs", null, h("marker", {
        id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto",
      }, h("path", { d: "M0 0 8 4 0 8z" }))),
      joined(edges).map((edge) => drawnEdge(edge, vertical))),
    nodes.map((node) => box(job, node, boxes.get(node.id))));
}

/** Edges between the same two boxes are one line with all their labels. */
function joined(edges) {
  const lines = new Map();
  for (const { from, to, input, points } of edges) {
    const line = lines.get(from + to) ?? { points, labels: new Set(), key: from + to };
    line.labels.add(input.tag ? `${input.ship_strategy} · ${input.tag}` : input.ship_strategy);
    lines.set(from + to, line);
  }
  return [...lines.values()];
}

function drawnEdge({ key, points, labels }, vertical) {
  const [from, to] = points.slice(-2);
  const label = vertical
    ? { x: to.x + 8, y: to.y - 14 }
    : { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 - 6, "text-anchor": "middle" };
  return h("g", { key },
    h("path", { class: "edge", d: curve(points, vertical), "marker-end": "url(#arrow)" }),
    h("text", label, [...labels].join(", ")));
}

function box(job, node, { x, y }) {
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
    key: node.id, type: "button", class: `vertex ${now["backpressure-level"]}`, "aria-pressed": String(chosen),
    title: node.description,
    style: { left: `${x + MARGIN}px`, top: `${y + MARGIN}px`, width: `${BOX.width}px`, height: `${BOX.height}px` },
    on: { click: choose },
  },
  h("span", { class: "name" }, node.description),
  h("span", { class: "parallelism", title: "Parallelism" }, `×${node.parallelism}`),
  h("span", { class: "figures" },
    h("span", null, h("i", null, "in "), rate(now["records-in-per-second"])),
    h("span", null, h("i", null, "out "), rate(now["records-out-per-second"])),
    h("span", null, h("i", null, "all "), short(total(vertex)))),
  h("span", { class: "mark" }, h("i", null, "watermark "), watermark(now.watermark, job.details.now)),
  h("span", { class: "share" }, load(now), h("span", null, busyText(busy, now))));
}

function busyText(busy, now) {
  const blocked = now["backpressured-ms-per-second"] / 1000;
  return blocked > busy ? `${percent(blocked)} blocked` : `${percent(busy)} busy`;
}

function total(vertex) {
  return Math.max(vertex.metrics["read-records"], vertex.metrics["write-records"]);
}

function details(job, node) {
  const subtasks = job.answers.vertex?.subtasks;
  return h("div", { class: "panel", key: node.id },
    section(node.description,
      table("Operators", [
        ["Operator", (op) => op.name],
        ["Kind", (op) => op.kind],
        ["Keyed", (op) => (op.keyed ? "yes" : "no")],
        ["Uid", (op) => h("code", null, op.id)],
      ], node.operators, { key: (op) => op.id })),
    problem(job.answers["vertex problem"]),
    subtasks && section("Subtasks", table("Subtasks", columns(job), subtasks, { key: (one) => one.subtask })));
}

function columns(job) {
  return [
    ["Subtask", (one) => one.subtask + 1, "number"],
    ["Records in", (one) => count(one.metrics["read-records"]), "number"],
    ["Bytes in", (one) => bytes(one.metrics["read-bytes"]), "number"],
    ["Records out", (one) => count(one.metrics["write-records"]), "number"],
    ["Bytes out", (one) => bytes(one.metrics["write-bytes"]), "number"],
    ["Now in", (one) => rate(one.now["records-in-per-second"]), "number"],
    ["Watermark", (one) => watermark(one.watermark, job.details.now), "number"],
    ["Load", (one) => load(one.now)],
    ["Busy", (one) => duration(one.metrics["accumulated-busy-time"]), "number"],
    ["Back-pressured", (one) => duration(one.metrics["accumulated-backpressured-time"]), "number"],
    ["Worker", (one) => h("code", null, one["taskmanager-id"])],
  ];
}
