/* Where the boxes of a graph stand: layers one after the other, few crossings, edges that bend
around boxes. Pure: from nodes and sizes to numbers.

The layers go from left to right. With `vertical`, `layout` swaps the axes, and they go from top to
bottom. Within the functions "along" is the direction of the layers and
"across" the other one. */

const SWEEPS = 6;

/** Place nodes `{id, level, inputs: [{id}]}` that are `width` × `height`; all lengths in pixels.

Returns `{width, height, boxes: Map(id → {x, y}), edges: [{from, to, input, points}]}`; the points
of an edge are where it leaves, passes layers, and arrives. */
export function layout(nodes, { width, height, gap, space, vertical = false }) {
  const [along, across] = vertical ? [height, width] : [width, height];
  const layers = layersOf(nodes);
  const chains = insertBends(nodes, layers);
  order(layers);
  const size = (item) => (item.bend ? space : across);
  spread(layers, size, space);
  const step = along + gap;
  const swap = (a, b) => (vertical ? { x: b, y: a } : { x: a, y: b });
  const boxes = new Map();
  for (const item of layers.flat()) {
    if (!item.bend) boxes.set(item.id, swap(item.layer * step, item.place - across / 2));
  }
  const edges = chains.map(({ from, to, input, items }) => ({
    from, to, input, points: route(items, { along, across, step }).map(([a, b]) => swap(a, b)),
  }));
  const end = Math.max(0, ...layers.flat().map((item) => item.place + size(item) / 2));
  const total = swap(layers.length * step - gap, end);
  return { width: total.x, height: total.y, boxes, edges };
}

/** The nodes by level; levels without nodes are left out. */
function layersOf(nodes) {
  const levels = [...new Set(nodes.map((node) => node.level))].sort((a, b) => a - b);
  return levels.map((level, layer) =>
    nodes.filter((node) => node.level === level)
      .map((node) => ({ id: node.id, layer, bend: false, before: [], after: [], place: 0 })));
}

/** Give each edge an item in every layer that it passes. */
function insertBends(nodes, layers) {
  const items = new Map(layers.flat().map((item) => [item.id, item]));
  const chains = [];
  for (const node of nodes) {
    const seen = new Map();
    node.inputs.forEach((input) => {
      const from = items.get(input.id), to = items.get(node.id);
      if (!from || from.layer >= to.layer) return;
      const twin = seen.get(input.id);
      const chain = twin ?? bends(from, to, layers);
      seen.set(input.id, chain);
      chains.push({ from: input.id, to: node.id, input, items: chain });
    });
  }
  return chains;
}

function bends(from, to, layers) {
  const chain = [from];
  for (let layer = from.layer + 1; layer < to.layer; layer += 1) {
    const bend = { id: null, layer, bend: true, before: [], after: [], place: 0 };
    layers[layer].push(bend);
    chain.push(bend);
  }
  chain.push(to);
  for (let i = 1; i < chain.length; i += 1) {
    chain[i].before.push(chain[i - 1]);
    chain[i - 1].after.push(chain[i]);
  }
  return chain;
}

/** Put each item near the middle of its neighbours: forwards, backwards, and so on. */
function order(layers) {
  layers.forEach((layer) => layer.forEach((item, place) => { item.place = place; }));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forwards = sweep % 2 === 0;
    for (const layer of forwards ? layers : [...layers].reverse()) {
      const wish = new Map(layer.map((item) =>
        [item, mean(forwards ? item.before : item.after) ?? item.place]));
      layer.sort((a, b) => wish.get(a) - wish.get(b));
      layer.forEach((item, place) => { item.place = place; });
    }
  }
}

function mean(items) {
  return items.length ? items.reduce((sum, item) => sum + item.place, 0) / items.length : undefined;
}

/** From an order to places: as near to the neighbours as the sizes allow. */
function spread(layers, size, space) {
  for (const layer of layers) {
    let end = 0;
    for (const item of layer) {
      item.place = end + size(item) / 2;
      end += size(item) + space;
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forwards = sweep % 2 === 0;
    for (const layer of forwards ? layers : [...layers].reverse()) {
      const wishes = layer.map((item) =>
        mean(forwards ? item.before : item.after) ?? mean([...item.before, ...item.after]) ?? item.place);
      settle(layer, wishes, size, space);
    }
  }
  const least = Math.min(...layers.flat().map((item) => item.place - size(item) / 2));
  layers.flat().forEach((item) => { item.place -= least; });
}

/** Places that keep the order and the distances, and whose squared distance to the wishes is least:
neighbours that push each other become a block, which stands at the mean of its wishes. */
function settle(layer, wishes, size, space) {
  const blocks = [];
  layer.forEach((item, i) => {
    const offset = i === 0 ? 0 : (size(layer[i - 1]) + size(item)) / 2 + space;
    let block = { items: [{ item, offset: 0 }], wish: wishes[i], gap: offset };
    while (blocks.length) {
      const last = blocks.at(-1);
      const end = last.wish + last.items.at(-1).offset;
      if (end + block.gap <= block.wish) break;
      blocks.pop();
      const shift = last.items.at(-1).offset + block.gap;
      const [m, n] = [last.items.length, block.items.length];
      block = {
        items: [...last.items, ...block.items.map((one) => ({ ...one, offset: one.offset + shift }))],
        wish: (last.wish * m + (block.wish - shift) * n) / (m + n),
        gap: last.gap,
      };
    }
    blocks.push(block);
  });
  for (const block of blocks) {
    for (const { item, offset } of block.items) item.place = block.wish + offset;
  }
}

/** The points that an edge goes through: the ends of boxes, and both sides of layers between. */
function route(items, { along, step }) {
  return items.flatMap((item, i) => {
    const start = item.layer * step;
    if (i === 0) return [[start + along, item.place]];
    if (i === items.length - 1) return [[start, item.place]];
    return [[start, item.place], [start + along, item.place]];
  });
}

/** A smooth line through the points of an edge, as the path data of SVG. */
export function curve(points, vertical = false) {
  const [first, ...rest] = points;
  let data = `M${first.x} ${first.y}`;
  let last = first;
  for (const point of rest) {
    const half = vertical ? (point.y - last.y) / 2 : (point.x - last.x) / 2;
    data += vertical
      ? `C${last.x} ${last.y + half} ${point.x} ${point.y - half} ${point.x} ${point.y}`
      : `C${last.x + half} ${last.y} ${point.x - half} ${point.y} ${point.x} ${point.y}`;
    last = point;
  }
  return data;
}
