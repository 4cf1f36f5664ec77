/* All settings of a job, with where each comes from; secrets were masked before they came here. */

import { h } from "./dom.js";
import { choice, empty, fact, facts, problem, section, table } from "./parts.js";

export function refresh(job) {
  job.keep("config", "never changes");
}

export function view(job) {
  const answer = job.answers.config;
  if (!answer) return problem(job.answers["config problem"]) ?? empty("Asking the server …");
  const execution = answer["execution-config"];
  const wanted = (job.ui.filter ?? "").toLowerCase();
  const origins = [...new Set(answer.settings.map((one) => one.origin))].sort();
  const rows = answer.settings.filter((one) => (!job.ui.origin || one.origin === job.ui.origin)
    && [one.key, one.value].some((text) => text.toLowerCase().includes(wanted)));
  return [
    section("How it runs", facts(
      fact("Parallelism", execution["job-parallelism"]),
      fact("Restart strategy", execution["restart-strategy"]),
      fact("Object reuse", execution["object-reuse-mode"] ? "yes" : "no"))),
    section("Settings",
      h("form", { class: "row", on: { submit: (event) => event.preventDefault() } },
        h("div", { class: "field" }, h("label", { for: "filter" }, "Show those with"),
        h("input", {
          id: "filter", type: "search",
          made: (node) => { node.value = job.ui.filter ?? ""; },
          on: { input: (event) => { job.ui.filter = event.target.value; job.draw(); } },
        })),
        choice("origin", "From", [["", "anywhere"], ...origins.map((one) => [one, ORIGINS[one] ?? one])], {
          change: (event) => { job.ui.origin = event.target.value; job.draw(); },
        })),
      rows.length ? table("Settings", COLUMNS, rows, { key: (one) => one.key }) : empty("There are none.")),
  ];
}

const ORIGINS = { default: "default", program: "the program", "command line": "the command line", Spark: "Spark's configuration" };

const COLUMNS = [
  ["Setting", (one) => h("code", null, one.key)],
  ["Value", (one) => h("code", { class: "value" }, one.value)],
  ["From", (one) => h("span", { class: one.origin === "default" ? "hint" : undefined }, ORIGINS[one.origin] ?? one.origin)],
];
