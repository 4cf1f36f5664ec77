/* The figures of a job over time, and the metrics of its functions. They come from the journal, so they outlive the job. */

import { legend } from "./chart.js";
import { h } from "./dom.js";
import { bytes, count, duration, percent, rate, short } from "./format.js";
import { colour, lines } from "./lines.js";
import { empty, problem, section } from "./parts.js";

const MINUTE = 60_000;
const RANGES = [
  ["15 minutes", 15 * MINUTE], ["1 hour", 60 * MINUTE], ["6 hours", 360 * MINUTE], ["1 day", 1440 * MINUTE],
  ["the whole time", null],
];

export function refresh(job) {
  job.keep("series", `${job.versions.series} ${job.ui.range}`, "series", { since: since(job) });
}

/** What is asked for begins here; undefined for all that there is. */
function since(job) {
  const end = job.ended ? job.details["end-time"] : job.details.now;
  return job.ui.range ? Math.max(0, end - job.ui.range) : undefined;
}

export function view(job) {
  const answer = job.answers.series;
  if (!answer) return problem(job.answers["series problem"]) ?? empty("Asking the server …");
  return [
    ranges(job),
    answer.time.length ? [figures(job, answer), functions(job, answer)]
      : empty("Nothing was measured yet: there is a point every five seconds, and one at the end of a job."),
  ];
}

function ranges(job) {
  const choose = (range) => {
    job.ui.range = range;
    refresh(job);
    job.draw();
  };
  return h("div", { class: "choices", role: "group", "aria-label": "Time that is shown", key: "ranges" },
    RANGES.map(([name, range]) => h("button", {
      type: "button", "aria-pressed": String((job.ui.range ?? null) === range), on: { click: () => choose(range) },
    }, name)));
}

/** What all charts have in common; what is pointed at in one is shown in all. */
function common(job, answer) {
  const point = (moment) => {
    job.ui.moment = moment;
    job.draw();
  };
  return { times: answer.time, spans: answer.span, moment: job.ui.moment ?? null, point };
}

function figures(job, answer) {
  const chart = (name, series, label, more) => lines({ ...common(job, answer), name, series, label, ...more });
  const one = (values, name, n = 0) => ({ kind: colour(n), name, values });
  const vertices = (figure) => answer.vertices.map((vertex, n) => one(vertex[figure], vertex.name, n))
    .filter(({ values }) => values.some((value) => value !== null));
  const share = (ms) => percent(ms / 1000);
  return [
    section("The job",
      legend([[colour(0), "read by sources"], [colour(1), "written by sinks"]]),
      h("div", { class: "pair" },
        chart("Records per second", [one(answer["records-read"], "read"), one(answer["records-written"], "written", 1)], rate),
        chart("Checkpoint duration, the longest", [one(answer["checkpoint-duration"], "duration", 2)], duration, { joined: true }),
        chart("Size of the state", [one(answer["state-bytes"], "state", 3)], bytes, { base: 1024 }),
        chart("Memory of the workers", [one(answer["memory-bytes"], "memory", 4)], bytes, { base: 1024 }))),
    section("Vertices",
      legend(answer.vertices.map((vertex, n) => [colour(n), vertex.name])),
      h("div", { class: "pair" },
        chart("Records in per second", vertices("records-in"), rate),
        chart("Records out per second", vertices("records-out"), rate),
        chart("Watermark: how far it is behind", vertices("watermark-lag"), duration),
        chart("Back pressure, of the worst subtask", vertices("backpressured"), share),
        chart("Busy, the busiest subtask", vertices("busy"), share))),
  ];
}

function functions(job, answer) {
  const operators = Object.values(Object.groupBy(answer.metrics, (metric) => metric.operator));
  if (!operators.length) {
    return section("Metrics of functions", empty("No function has metrics: runtime_context.get_metrics_group() makes them."));
  }
  return operators.map((metrics) => h("section", { key: `metrics ${metrics[0].operator}` },
    h("h2", null, `Metrics of ${metrics[0]["operator-name"]}`),
    h("div", { class: "pair" }, metrics.map((metric) => lines({
      ...common(job, answer), name: title(metric), label: short,
      series: [{ kind: colour(0), name: metric.name, values: metric.values }],
    })))));
}

/** A number with its value now, a distribution with what it is of. */
function title(metric) {
  if (metric["is-distribution"]) {
    return `${metric.name}: mean of ${count(metric.count)} so far, from ${count(metric.least)} to ${count(metric.most)}`;
  }
  return `${metric.name}: ${count(metric.values.findLast((value) => value !== null))}`;
}
