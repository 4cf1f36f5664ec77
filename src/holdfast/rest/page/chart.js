/* Bars side by side, one for each thing that happened; each may have parts on top of each other. */

import { h } from "./dom.js";

const HEIGHT = 100;

/** The least of 1, 2 and 5 times a power of ten that is not below a number. */
function ceiling(number) {
  if (!(number > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].map((times) => times * power).find((bound) => bound >= number * 0.999);
}

/** Draw bars.

`parts(item)`: `[class, number]` from the bottom up; `label(number)`: as the axis says it; `describe(item)`: in words;
`select(item)` is called with the item under the pointer, or of the arrow keys, and null for none. */
export function bars({ name, items, slots, parts, label, describe, selected, select }) {
  const heights = items.map((item) => parts(item).reduce((sum, [, number]) => sum + number, 0));
  const top = ceiling(Math.max(0, ...heights));
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
    h("figcaption", null, h("span", null, name), h("span", { class: "top" }, items.length ? label(top) : "")),
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
    items.map((item, i) => bar(item, left + i, parts(item), top, item === selected))));
}

function bar(item, x, parts, top, isSelected) {
  let y = HEIGHT;
  return h("g", { key: x, class: isSelected ? "selected" : undefined },
    h("rect", { class: "back", x, y: 0, width: 1, height: HEIGHT }),
    parts.map(([kind, number]) => {
      const height = number / top * HEIGHT;
      y -= height;
      return h("rect", { class: kind, x: x + 0.1, y, width: 0.8, height });
    }));
}

/** What the colours mean. */
export function legend(entries) {
  return h("ul", { class: "legend" }, entries.map(([kind, text]) =>
    h("li", null, h("span", { class: `swatch ${kind}` }), text)));
}
