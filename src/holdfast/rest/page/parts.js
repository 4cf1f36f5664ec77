/* Pieces that several views are made of. */

import { h } from "./dom.js";

const TONES = {
  RUNNING: "good", FINISHED: "good", COMPLETED: "good",
  FAILED: "bad", FAILING: "bad",
  RESTARTING: "warn", CANCELLING: "warn", IN_PROGRESS: "warn", SUSPENDED: "warn",
};

export function status(word) {
  return h("span", { class: `status ${TONES[word] ?? "done"}` }, word.toLowerCase().replaceAll("_", " "));
}

/** A figure with its name; `why` is said where it is pointed at. */
export function fact(name, value, more, why) {
  return h("div", { class: "fact", key: name, title: why },
    h("dt", null, name),
    h("dd", null, value, more && h("small", null, ` ${more}`)));
}

export function facts(...children) {
  return h("dl", { class: "facts" }, children);
}

/** A table that scrolls by itself where there is no room for it.

`columns`: `[title, cell, kind?]` with "number" or "when"; a cell is made from a row. `after(row)` may be a row of its own; a `tall` table
scrolls up and down, too; a `dense` one has little room between its columns. */
export function table(name, columns, rows, { key, after, tall, dense } = {}) {
  return h("div", { class: ["scroll", tall && "tall", dense && "dense"].filter(Boolean).join(" "), tabindex: 0, role: "region", "aria-label": name },
    h("table", null,
      h("thead", null, h("tr", null, columns.map(([title, , kind]) => h("th", { class: kind, scope: "col" }, title)))),
      h("tbody", null, rows.map((row, i) => [
        h("tr", { key: `row ${key ? key(row) : i}` },
          columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row, i)))),
        after?.(row),
      ]))));
}

export function section(title, ...children) {
  return h("section", { key: title }, h("h2", null, title), children);
}

export function empty(text) {
  return h("p", { class: "empty" }, text);
}

/** What went wrong, as the server says it. */
export function problem(text) {
  return text && h("p", { class: "problem", role: "alert" }, text);
}

/** Busy, back-pressured and idle time of a second, as a bar. */
export function meter(now) {
  const busy = now["busy-ms-per-second"] / 10;
  const blocked = now["backpressured-ms-per-second"] / 10;
  const idle = now["idle-ms-per-second"] / 10;
  const text = [["busy", busy], ["back-pressured", blocked], ["idle", idle]]
    .map(([name, share]) => `${name} ${Math.round(share)} %`).join(", ");
  return h("span", { class: "meter", role: "img", "aria-label": text, title: text },
    h("span", { class: "busy", style: { width: `${busy}%` } }),
    h("span", { class: `blocked ${now["backpressure-level"]}`, style: { width: `${blocked}%` } }));
}

/** A field in which one of several things is chosen; `options`: `[value, text]`. */
export function choice(name, label, options, on = {}) {
  const id = `choice-${name}`;
  return h("div", { class: "field" }, h("label", { for: id }, label),
    h("select", { id, name, on }, options.map(([value, text]) => h("option", { key: value, value }, text))));
}
