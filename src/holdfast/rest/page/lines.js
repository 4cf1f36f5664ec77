/* Lines over time: figures whose points are means over spans, with gaps where nothing was measured. */

import { ceiling } from "./chart.js";
import { h } from "./dom.js";
import { time } from "./format.js";

const WIDTH = 1000;
const HEIGHT = 100;
/** so many lines have a colour of their own */
export const COLOURS = 8;
/** a gap is longer than this many milliseconds */
const GAP_MS = 3000;

/** The class with the colour of the n-th line. */
export function colour(n) {
  return `line-${n % COLOURS}`;
}

/** Draw lines over a time.

`times`, `spans`: when each point ended, and how long it was; `series`: `{ kind, name, values }`, a value is null
where there is none; `label(value)`: as people read it, with units that are powers of `base`; `moment`: the time that
is pointed at, or null; `point(time)` is called with the time under the pointer, or of the arrow keys. With `joined`, a
line goes on where there are no values: those of something that happens now and then. */
export function lines({ name, times, spans, series, label, base = 10, joined = false, moment, point }) {
  const from = times.length ? times[0] - spans[0] : 0;
  const length = Math.max(1, (times.at(-1) ?? 1) - from);
  const known = series.flatMap(({ values }) => values).filter((value) => value !== null);
  const top = ceiling(Math.max(0, ...known), base);
  const x = (ms) => WIDTH * (ms - from) / length;
  const y = (value) => HEIGHT * (1 - Math.max(0, value) / top);
  const chosen = moment === null ? -1 : nearest(times, moment);
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return from + length * (event.clientX - box.left) / box.width;
  };
  const move = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !times.length) return;
    event.preventDefault();
    point(times[chosen < 0 ? times.length - 1 : Math.min(times.length - 1, Math.max(0, chosen + by))]);
  };
  const said = chosen < 0 ? "arrow keys tell of each" : readings(series, chosen, label, times);
  return h("figure", { class: "chart", key: name },
    h("figcaption", null, h("span", null, name), h("span", { class: "most" }, known.length ? label(top) : "no data yet")),
    h("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: 0,
      "aria-label": `${name}, ${times.length} points; ${said}`,
      on: {
        pointermove: (event) => point(at(event)),
        pointerleave: () => point(null),
        keydown: move,
        blur: () => point(null),
      },
    },
    [0.5, 1].map((share) => h("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * (1 - share), y2: HEIGHT * (1 - share) })),
    series.map(({ kind, name: of, values }) =>
      h("path", { key: of, class: `line ${kind}`, d: path(times, spans, values, x, y, joined) })),
    chosen >= 0 && h("line", { key: "moment", class: "moment", x1: x(times[chosen]), x2: x(times[chosen]), y1: 0, y2: HEIGHT })),
    h("div", { class: "axis" }, chosen >= 0 ? h("span", { key: "reading", class: "reading" }, said)
      : times.length > 0 && [h("span", { key: "from" }, time(from)), h("span", { key: "to" }, time(times.at(-1)))]));
}

/** What the lines are at a point, in words; the largest first. */
function readings(series, place, label, times) {
  const values = series.map(({ name, values: all }) => [name, all[place]]).filter(([, value]) => value !== null);
  values.sort(([, a], [, b]) => b - a);
  const said = values.slice(0, COLOURS).map(([name, value]) => (series.length > 1 ? `${name} ${label(value)}` : label(value)));
  return [time(times[place]), ...(said.length ? said : ["nothing"])].join(" · ");
}

function nearest(times, moment) {
  let best = -1;
  times.forEach((one, i) => {
    if (best < 0 || Math.abs(one - moment) < Math.abs(times[best] - moment)) best = i;
  });
  return best;
}

/** A line through the ends of spans; it begins where its first span does, and again after a gap. */
function path(times, spans, values, x, y, joined) {
  let said = "";
  let last = null;
  values.forEach((value, i) => {
    if (value === null) return;
    const begin = times[i] - spans[i];
    const goesOn = last !== null && (joined || begin - last < GAP_MS);
    if (!goesOn) said += `M${round(x(begin))} ${round(y(value))}`;
    said += `L${round(x(times[i]))} ${round(y(value))}`;
    last = times[i];
  });
  return said;
}

function round(number) {
  return Math.round(10 * number) / 10;
}
