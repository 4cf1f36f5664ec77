/* Questions, in a dialog of the browser's own: focus stays inside, Escape says no. */

import { h, render } from "./dom.js";

/** Ask; returns what was entered, by the names of the fields, or null for no.

`fields`: `{name, label, type, value, hint, required, min, max}`; a type is one of `input`'s. */
export function ask({ title, text, fields = [], confirm, danger = false }) {
  const dialog = document.createElement("dialog");
  document.body.append(dialog);
  return new Promise((answer) => {
    const close = (values) => {
      dialog.close();
      dialog.remove();
      answer(values);
    };
    dialog.setAttribute("aria-labelledby", "question");
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      close(null);
    });
    render(dialog, h("form", {
      on: {
        submit: (event) => {
          event.preventDefault();
          close(values(event.target, fields));
        },
      },
    },
    h("h2", { id: "question" }, title),
    text && h("p", null, text),
    fields.map(field),
    h("div", { class: "buttons" },
      h("button", { type: "button", on: { click: () => close(null) } }, "No, go back"),
      h("button", { class: danger ? "danger" : "primary" }, confirm))));
    dialog.showModal();
  });
}

function field({ name, label, type, value, hint, ...rules }) {
  const id = `field-${name}`;
  const input = h("input", {
    id, name, type, ...rules,
    autocomplete: "off",
    "aria-describedby": hint ? `${id}-hint` : undefined,
    made: (node) => {
      if (type === "checkbox") node.checked = Boolean(value);
      else node.value = value ?? "";
    },
  });
  return h("div", { class: `field ${type}` },
    type === "checkbox" ? [input, h("label", { for: id }, label)] : [h("label", { for: id }, label), input],
    hint && h("small", { id: `${id}-hint` }, hint));
}

function values(form, fields) {
  return Object.fromEntries(fields.map(({ name, type }) => {
    const input = form.elements[name];
    return [name, type === "checkbox" ? input.checked : type === "number" ? input.valueAsNumber : input.value.trim()];
  }));
}

const notes = new Map();

/** Say something at the edge of the page; `state` is "busy", "good" or "bad". The same id replaces. */
export function note(id, state, text) {
  notes.set(id, { state, text });
  drawNotes();
  if (state === "good") setTimeout(() => forget(id, text), 12_000);
}

function forget(id, text) {
  if (text === undefined || notes.get(id)?.text === text) notes.delete(id);
  drawNotes();
}

function drawNotes() {
  render(document.getElementById("notes"), [...notes].map(([id, { state, text }]) =>
    h("div", { key: id, class: `note ${state}` },
      h("span", null, text),
      h("button", { class: "plain", "aria-label": "Close this message", on: { click: () => forget(id) } }, "×"))));
}
