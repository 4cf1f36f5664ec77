/* What is shown follows from the address: "#/" is the list of jobs, "#/jobs/ID/TAB" a job. */

import { get, keepToken, Refusal } from "./api.js";
import { ask } from "./dialog.js";
import { h, render } from "./dom.js";
import { openJob } from "./job.js";
import { openJobs } from "./jobs.js";

const content = document.getElementById("content");
let shown = { path: null, close() {}, go() {} };
let site = null;

/** What the views may do to the rest of the page. */
const frame = {
  content,
  title(...parts) {
    document.title = [...parts, "Holdfast"].join(" · ");
    render(document.getElementById("where"), parts.map((part) => h("span", null, part)));
  },
  link(state, text) {
    render(document.getElementById("link"), h("span", { class: `link ${state}` }, text));
  },
};

function follow() {
  const [, id, tab] = /^#\/jobs\/([0-9a-f]{32})(?:\/(\w+))?$/.exec(location.hash) ?? [];
  const path = id ?? "";
  if (shown.path === path) {
    shown.go(tab);
    return;
  }
  shown.close();
  render(content);
  shown = { path, ...(id ? openJob(frame, site, id, tab) : openJobs(frame, site)) };
}

async function start() {
  for (;;) {
    try {
      site = await get("config");
      break;
    } catch (problem) {
      if (!(problem instanceof Refusal && problem.status === 401)) throw problem;
      const given = await ask({
        title: "This server asks for a token",
        text: "It is the one of “rest.token” or “rest.read-token” in the job's settings.",
        fields: [{ name: "token", label: "Token", type: "password" }],
        confirm: "Go on",
      });
      if (given) keepToken(given.token);
    }
  }
  addEventListener("hashchange", follow);
  follow();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  // the address is taken: it says what is shown
  event.preventDefault();
  content.focus();
});

function sayNoServer(problem) {
  frame.link("gone", "no answer");
  render(content, h("p", { class: "empty" }, `The server does not answer: ${problem.message}`));
}

start().catch(sayNoServer);
