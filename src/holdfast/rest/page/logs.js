/* What functions logged in the workers, by operator and level; the newest last. */

import { h } from "./dom.js";
import { count, time } from "./format.js";
import { choice, empty, problem, section } from "./parts.js";

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
const TONES = { WARNING: "warn", ERROR: "bad", CRITICAL: "bad" };
const SHOWN = 500;

export function refresh(job) {
  const { level, operator } = job.ui.log ?? {};
  job.keep("logs", `${job.versions.logs} ${level} ${operator}`, "logs", {
    level: level || undefined, operator: operator || undefined, lines: SHOWN,
  });
}

export function view(job) {
  const answer = job.answers.logs;
  if (!answer) return problem(job.answers["logs problem"]) ?? empty("Asking the server …");
  if (!answer.kept) {
    return empty("Log lines are kept by the process of the job, as long as its server runs. They are not in its history.");
  }
  const { lines, total } = answer;
  return section("Log of the workers",
    filters(job, answer),
    problem(job.answers["logs problem"]),
    h("p", { class: "hint" }, `${count(total)} lines so far. The last ones are kept: 1,000 from WARNING on, and 1,000 below that.`),
    lines.length ? h("ol", { class: "log scroll tall", tabindex: 0, role: "region", "aria-label": "Log lines", made: follow },
      lines.map(entry)) : empty(total ? "No line fits." : "Nothing was logged. Levels are those of your program: logging.getLogger().setLevel(logging.INFO)."));
}

function filters(job, { operators }) {
  const set = (name) => (event) => {
    job.ui.log = { ...job.ui.log, [name]: event.target.value };
    refresh(job);
    job.draw();
  };
  return h("form", { class: "row", on: { submit: (event) => event.preventDefault() } },
    choice("log-level", "From level", [["", "all"], ...LEVELS.slice(1).map((level) => [level, level])], { change: set("level") }),
    choice("log-operator", "Operator", [["", "all"], ...operators.map((name) => [name, name])], { change: set("operator") }));
}

/** Begin at the end. */
function follow(node) {
  requestAnimationFrame(() => { node.scrollTop = node.scrollHeight; });
}

function entry(line) {
  const where = line.operator === null ? "" : `${line.operator} #${line.subtask}`;
  return h("li", { key: line.number, title: `${line.logger}, process ${line.process} on ${line.host}, start ${line.attempt + 1}` },
    h("span", { class: "when" }, time(line.time)),
    h("span", { class: `level ${TONES[line.level] ?? ""}` }, line.level),
    h("span", { class: "whose" }, where),
    h("span", { class: "said" }, line.message, line.trace && h("pre", null, line.trace)));
}
