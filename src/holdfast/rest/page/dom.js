/* Descriptions of elements, and how a part of the page becomes what they say.

A view is a function from data to descriptions. `render` changes only what differs, so that focus,
selection and scroll positions stay where they are while figures move.

All text goes through text nodes, and all attributes are named here in the code: nothing that a job
says is ever read as HTML. */

const SVG = "http://www.w3.org/2000/svg";
const NOTHING = new Set([null, undefined, false, true]);

/** Describe an element. `key` tells it from its siblings; `on` has listeners, `style` properties. */
export function h(tag, attributes, ...children) {
  return { tag, attributes: attributes ?? {}, children: children.flat(Infinity).filter(present) };
}

function present(child) {
  return !NOTHING.has(child);
}

/** Make the children of an element what the descriptions say. */
export function render(parent, ...children) {
  patchChildren(parent, children.flat(Infinity).filter(present));
}

function patchChildren(parent, wanted) {
  const keyed = new Map();
  for (const node of parent.childNodes) {
    if (node.holdfast?.key !== undefined) keyed.set(node.holdfast.key, node);
  }
  let next = parent.firstChild;
  for (const child of wanted) {
    const key = child.attributes?.key;
    const candidate = key === undefined ? next : keyed.get(key);
    if (candidate && fits(candidate, child)) {
      if (candidate === next) next = next.nextSibling;
      else parent.insertBefore(candidate, next);
      patch(candidate, child);
    } else {
      parent.insertBefore(create(child, parent), next);
    }
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}

function fits(node, child) {
  if (typeof child !== "object") return node.nodeType === Node.TEXT_NODE;
  return node.holdfast?.tag === child.tag && node.holdfast.key === child.attributes.key;
}

function create(child, parent) {
  if (typeof child !== "object") return document.createTextNode(String(child));
  const inSvg = child.tag === "svg" || parent.namespaceURI === SVG;
  const node = inSvg ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag);
  node.holdfast = { tag: child.tag, key: child.attributes.key, attributes: {}, listeners: {} };
  patch(node, child);
  child.attributes.made?.(node);
  return node;
}

function patch(node, child) {
  if (typeof child !== "object") {
    const text = String(child);
    if (node.data !== text) node.data = text;
    return;
  }
  const before = node.holdfast.attributes;
  const after = child.attributes;
  for (const name of Object.keys(before)) if (!(name in after)) node.removeAttribute(name);
  for (const [name, value] of Object.entries(after)) {
    if (name === "on") listen(node, value);
    else if (name === "style") Object.entries(value).forEach(([k, v]) => node.style.setProperty(k, v));
    else if (name !== "key" && name !== "made" && before[name] !== value) set(node, name, value);
  }
  node.holdfast.attributes = after;
  patchChildren(node, child.children);
}

function set(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

/** One listener per kind of event, which calls the newest function. */
function listen(node, functions) {
  const listeners = node.holdfast.listeners;
  for (const kind of Object.keys(functions)) {
    if (!(kind in listeners)) node.addEventListener(kind, (event) => listeners[kind](event));
    listeners[kind] = functions[kind];
  }
}
