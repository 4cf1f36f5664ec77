/* The settings of a job; secrets were masked before they came here. */

import { h } from "./dom.js";
import { empty, fact, facts, problem, section, table } from "./parts.js";

export function refresh(job) {
  job.keep("config", "never changes");
}

export function view(job) {
  const answer = job.answers.config;
  if (!answer) return problem(job.answers["config problem"]) ?? empty("Asking the server …");
  const execution = answer["execution-config"];
  const wanted = (job.ui.filter ?? "").toLowerCase();
  const rows = Object.entries(answer.configuration)
    .filter((pair) => pair.some((text) => text.toLowerCase().includes(wanted)));
  return [
    section("How it runs", facts(
      fact("Parallelism", execution["job-parallelism"]),
      fact("Restart strategy", execution["restart-strategy"]),
      fact("Object reuse", execution["object-reuse-mode"] ? "yes" : "no"))),
    section("Settings",
      h("div", { class: "field" },
        h("label", { for: "filter" }, "Show those with"),
        h("input", {
          id: "filter", type: "search",
          made: (node) => { node.value = job.ui.filter ?? ""; },
          on: { input: (event) => { job.ui.filter = event.target.value; job.draw(); } },
        })),
      rows.length ? table("Settings", COLUMNS, rows, { key: ([name]) => name }) : empty("There are none.")),
  ];
}

const COLUMNS = [
  ["Setting", ([name]) => h("code", null, name)],
  ["Value", ([, value]) => h("code", { class: "value" }, value)],
];
