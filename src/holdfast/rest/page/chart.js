/* Bars side by side, one for each thing that happened; each may have parts on top of each other. */

import { h } from "./dom.js";

const HEIGHT = 100;
/** so much of a bar is always seen */
const LEAST = 1.5;
/** bars that are so many times higher than nearly all others are cut */
const FAR = 5;

/** The least of 1, 2 and 5 times a power of ten that is not below a number, in units of powers of `base`. */
export function ceiling(number, base) {
  if (!(number > 0)) return 1;
  const unit = base ** Math.max(0, Math.floor(Math.log(number) / Math.log(base)));
  const power = unit * 10 ** Math.floor(Math.log10(number / unit));
  return [1, 2, 5, 10].map((times) => times * power).find((bound) => bound >= number * 0.999);
}

/** The top of the axis: the highest bar, unless a few are so high that the others could not be read. */
function bound(heights, base) {
  const sorted = [...heights].sort((a, b) => a - b);
  const high = sorted[Math.floor(0.95 * sorted.length)] ?? 0;
  const highest = sorted.at(-1) ?? 0;
  return ceiling(high > 0 && highest > FAR * high ? 1.5 * high : highest, base);
}

/** Draw bars; what is above the axis has a mark there.

`parts(item)`: `[class, number]` from the bottom up; `label(number)`: as the axis says it, with units that
are powers of `base`; `describe(item)`: in words;
`select(item)` is called with the item under the pointer, or of the arrow keys, and null for none. */
export function bars({ name, items, slots, parts, label, base = 10, describe, selected, select }) {
  const heights = items.map((item) => parts(item).reduce((sum, [, number]) => sum + number, 0));
  const top = bound(heights, base);
  const width = Math.max(slots, items.length, 1);
  const left = width - items.length;
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const place = Math.floor((event.clientX - box.left) / box.width * width) - left;
    return items[place] ?? null;
  };
  const move = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !items.length) return;
    event.preventDefault();
    const now = items.indexOf(selected);
    select(items[now < 0 ? items.length - 1 : Math.min(items.length - 1, Math.max(0, now + by))]);
  };
  return h("figure", { class: "chart", key: name },
    h("figcaption", null, h("span", null, name), h("span", { class: "most" }, items.length ? label(top) : "")),
    h("svg", {
      viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: 0,
      "aria-label": `${name}, ${items.length} bars${selected ? `; ${describe(selected)}` : "; arrow keys tell of each"}`,
      on: {
        pointermove: (event) => select(at(event)),
        pointerleave: () => select(null),
        keydown: move,
        blur: () => select(null),
      },
    },
    [0.5, 1].map((share) => h("line", { class: "grid", x1: 0, x2: width, y1: HEIGHT * (1 - share), y2: HEIGHT * (1 - share) })),
    items.map((item, i) => bar(left + i, parts(item), top, item === selected))));
}

function bar(x, parts, top, isSelected) {
  const whole = parts.reduce((sum, [, number]) => sum + number, 0);
  const scale = HEIGHT / top * (whole > top ? top / whole : 1);
  let y = HEIGHT;
  return h("g", { key: x, class: isSelected ? "selected" : undefined },
    h("rect", { class: "back", x, y: 0, width: 1, height: HEIGHT }),
    parts.map(([kind, number], i) => {
      const height = Math.max(i === 0 && whole * scale < LEAST ? LEAST : 0, number * scale);
      y -= height;
      return h("rect", { class: kind, x: x + 0.1, y, width: 0.8, height });
    }),
    whole > top && h("rect", { class: "over", x: x + 0.1, y: 0, width: 0.8, height: 2 * LEAST }));
}

/** What the colours mean. */
export function legend(entries) {
  return h("ul", { class: "legend" }, entries.map(([kind, text]) =>
    h("li", null, h("span", { class: `swatch ${kind}` }), text)));
}
