// Making and changing elements.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element with attributes (those that begin with "on" are listeners) and children. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Set the text of an element, if it differs: what does not change is not announced or laid out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute, if it differs; null removes it. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Show an element or hide it. */
export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

/** Keep one child for each key, in order: `make(key)` gives an object with `node`. Returns the objects by key. */
export function keyed(parent, objects, keys, make) {
  const wanted = new Set(keys);
  for (const [key, object] of objects) {
    if (!wanted.has(key)) {
      object.node.remove();
      object.close?.();
      objects.delete(key);
    }
  }
  let place = parent.firstElementChild;
  for (const key of keys) {
    let object = objects.get(key);
    if (!object) {
      object = make(key);
      objects.set(key, object);
    }
    if (object.node !== place) parent.insertBefore(object.node, place);
    else place = place.nextElementSibling;
  }
  return objects;
}

/** Tell the user something, politely; errors stay until they are closed. */
export function notify(text, kind = "info") {
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => notice.remove() }, "×");
  const notice = h("div", { class: `notice ${kind}` }, h("p", {}, text), close);
  document.getElementById("notices").append(notice);
  if (kind !== "error") setTimeout(() => notice.remove(), 6000);
}

/** Ask before doing something; resolves to whether to do it. */
export async function confirm(title, text, action) {
  const answer = await openDialog(title, (close) => [
    h("p", {}, text),
    h("div", { class: "actions" },
      h("button", { type: "button", onclick: () => close() }, "Cancel"),
      h("button", { type: "button", class: "primary", onclick: () => close("yes") }, action)),
  ]);
  return answer === "yes";
}

/**
 * Show a dialog; resolves to what it was closed with, "" for Escape. `make(close)` gives what is in it.
 * Each dialog is an element of its own: the browser tells of a dialog's end later, when the next one may be open.
 */
export function openDialog(title, make) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": title });
    dialog.append(h("h2", {}, title), ...make((value = "") => dialog.close(value)));
    dialog.onclose = () => {
      dialog.remove();
      resolve(dialog.returnValue);
    };
    document.body.append(dialog);
    dialog.showModal();
  });
}
