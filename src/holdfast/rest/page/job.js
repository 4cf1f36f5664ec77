/* A job: what the server says of it, kept up to date, and the tabs that show it. */

import { actions } from "./actions.js";
import { events, get } from "./api.js";
import * as checkpoints from "./checkpoints.js";
import * as configuration from "./configuration.js";
import { h, render } from "./dom.js";
import { ending } from "./ending.js";
import * as epochs from "./epochs.js";
import * as exceptions from "./exceptions.js";
import { bytes, count, duration, rate, time } from "./format.js";
import { empty, fact, facts, problem, status } from "./parts.js";
import * as logs from "./logs.js";
import * as plan from "./plan.js";
import * as series from "./series.js";
import * as states from "./states.js";

const TABS = { plan, series, epochs, checkpoints, exceptions, logs, states, configuration };
const NAMES = {
  plan: "Plan", series: "Metrics", epochs: "Epochs", checkpoints: "Checkpoints", exceptions: "Exceptions",
  logs: "Logs", states: "State", configuration: "Configuration",
};
const KEPT_EPOCHS = 1000;
const RATE_OVER_MS = 5000;
const ENDED = ["FINISHED", "CANCELED", "FAILED", "SUSPENDED"];
const ON_SPARK = ["resident", "epochs"];

/** All that is known of a job; the views read it. */
class Job {
  constructor(id, site, changed) {
    this.path = `jobs/${id}`;
    this.site = site;
    this.draw = changed;
    /** what the server answered, by the name of what it was asked for */
    this.answers = {};
    /** what views remember: what is open, chosen, entered */
    this.ui = {};
    this.details = null;
    /** whether the server does not answer any more */
    this.gone = false;
    this.counts = null;
    this.epochs = [];
    /** for kinds of events: how many events there were when one was last told */
    this.versions = {};
    this.asked = {};
  }

  get ended() {
    return ENDED.includes(this.details.state);
  }

  /** Whether something can be done to it. */
  get acts() {
    return this.site.features["web-cancel"] && !this.ended;
  }

  vertex(id) {
    return this.details.vertices.find((vertex) => vertex.id === id);
  }

  take(event) {
    this.details = event.job;
    this.counts = event.checkpoints;
    this.addEpochs(event.epochs);
    this.versions = event.changed;
  }

  addEpochs(more) {
    const known = this.epochs.at(-1)?.epoch ?? -1;
    this.epochs = [...this.epochs, ...more.filter((one) => one.epoch > known)].slice(-KEPT_EPOCHS);
  }

  /** Ask for something, unless nothing has happened to it since it was asked for. */
  keep(name, version = this.versions[name], path = name, query = {}) {
    if (this.asked[name] === version) return;
    this.asked[name] = version;
    this.load(name, path, query);
  }

  /** Ask for something, and remember the answer, or why there is none. */
  async load(name, path = name, query = {}) {
    try {
      this.answers[name] = await get(`${this.path}/${path}`, query);
      delete this.answers[`${name} problem`];
    } catch (problem) {
      this.answers[`${name} problem`] = problem.message;
    }
    this.draw();
  }

  /** Records that sources gave per second, in the last seconds. */
  get rate() {
    const last = this.epochs.at(-1);
    if (!last || this.ended) return 0;
    const end = (one) => one["start-time"] + 1000 * one.duration;
    const recent = this.epochs.filter((one) => end(one) >= end(last) - RATE_OVER_MS);
    const span = Math.max(200, end(last) - recent[0]["start-time"]);
    return 1000 * recent.reduce((sum, one) => sum + one["records-read"], 0) / span;
  }
}

export function openJob(frame, site, id, firstTab) {
  const stop = new AbortController();
  let tab = "plan";
  let wanted = false;
  let failure = null;
  const job = new Job(id, site, () => {
    if (!wanted) requestAnimationFrame(draw);
    wanted = true;
  });

  function draw() {
    wanted = false;
    if (stop.signal.aborted) return;
    if (!job.details) {
      render(frame.content, failure ? problem(failure) : empty("Asking the server …"));
      return;
    }
    frame.title(job.details.name, NAMES[tab]);
    render(frame.content, header(job), ending(job), tabs(job, id, tab), h("div", { class: "tab", key: tab }, TABS[tab].view(job)));
  }

  function go(name) {
    tab = name in TABS ? name : "plan";
    refresh();
    job.draw();
  }

  /** Ask for what is shown and has changed. */
  function refresh() {
    if (!job.details) return;
    job.keep("rescales", job.versions.rescales, "rescales/history");
    job.keep("attempts", `${job.versions.attempts} ${job.versions.exceptions}`);
    TABS[tab].refresh?.(job);
  }

  /** Take what the server says, until it ends, or nobody looks. */
  async function listen() {
    const connection = new AbortController();
    const leave = () => { if (document.hidden || stop.signal.aborted) connection.abort(); };
    document.addEventListener("visibilitychange", leave);
    stop.signal.addEventListener("abort", leave);
    try {
      let isNew = true;
      for await (const event of events(`jobs/${id}/live`, connection.signal)) {
        if (isNew) await loadEpochs();
        isNew = false;
        job.take(event);
        job.gone = false;
        frame.link(job.ended ? "done" : "good", job.ended ? "ended" : "live");
        refresh();
        job.draw();
      }
    } finally {
      document.removeEventListener("visibilitychange", leave);
      stop.signal.removeEventListener("abort", leave);
    }
  }

  /** An event has only the epochs of the last seconds. */
  async function loadEpochs() {
    const since = job.epochs.at(-1)?.epoch;
    job.addEpochs((await get(`jobs/${id}/epochs`, { since })).epochs);
  }

  async function keepListening() {
    for (let pause = 500; ; pause = Math.min(8000, 2 * pause)) {
      await seen();
      try {
        await listen();
        failure = null;
      } catch (problem) {
        failure = problem.message;
      }
      if (stop.signal.aborted) return;
      if (!document.hidden) {
        job.gone = true;
        frame.link("gone", job.details && job.ended ? "server gone" : "no answer");
        job.draw();
        await new Promise((done) => setTimeout(done, pause));
      }
    }
  }

  frame.title("Job");
  go(firstTab);
  keepListening();
  return { close: () => stop.abort(), go };
}

/** Wait until the page is in front. */
function seen() {
  return new Promise((done) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
    look();
  });
}

function header(job) {
  const { details, counts } = job;
  const last = job.epochs.at(-1);
  const restarts = job.answers.attempts?.failures;
  return h("section", { class: "head", key: "head" },
    h("div", { class: "title" },
      h("h1", null, details.name),
      status(details.state),
      h("code", { class: "id", title: "The id of the job" }, details.jid)),
    actions(job),
    facts(
      details.engine ? fact("Engine", details.engine, undefined, details["engine-reason"]) : null,
      sparkPage(details, job.ended),
      fact("Started", time(details["start-time"])),
      fact(job.ended ? "Ran for" : "Running for", duration(details.duration)),
      fact("Sources read", rate(job.rate)),
      fact("Epochs", last ? count(last.epoch + 1) : "0", last && `${duration(1000 * last.duration)} the last`),
      fact("Checkpoints", count(counts.completed), counts.failed ? `${counts.failed} failed` : undefined),
      fact("State", bytes(last?.["state-bytes"] ?? 0)),
      fact("Worker memory", bytes(last?.["memory-bytes"] ?? 0)),
      restarts ? fact("Failures", count(restarts)) : null,
      reduced(job)));
}

/** Where the web UI of Spark is, while the job runs on Spark. */
function sparkPage(details, ended) {
  const url = details["spark-ui"];
  if (url) return fact("Spark's page", h("a", { href: url, rel: "noreferrer" }, url.replace(/^https?:\/\//, "")));
  if (ended || !ON_SPARK.includes(details.engine)) return null;
  return fact("Spark's page", "off", "set spark.ui.enabled=true",
    "Spark's own web UI is off. To turn it on, start the job with -D spark.ui.enabled=true, or set this in the program before it executes.");
}

/** The task slots of a job that has fewer than it wants. */
function reduced(job) {
  const last = job.answers.rescales?.find((one) => one.terminalState === "COMPLETED");
  const { desiredSlots, postRescaleSlots } = last ? exceptions.slots(last) : {};
  if (job.ended || !last || postRescaleSlots >= desiredSlots) return null;
  return fact("Task slots", count(postRescaleSlots), `of ${desiredSlots}`, "There are fewer task slots than the job wants.");
}

function tabs(job, id, current) {
  const badge = { checkpoints: job.counts.failed, exceptions: job.answers.attempts?.failures };
  return h("nav", { class: "tabs", key: "tabs", "aria-label": "Parts of the job" },
    Object.keys(TABS).map((name) =>
      h("a", { href: `#/jobs/${id}/${name}`, "aria-current": name === current ? "page" : undefined },
        NAMES[name], badge[name] ? h("span", { class: "badge", title: `${badge[name]} failed` }, badge[name]) : null)));
}
