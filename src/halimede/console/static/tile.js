// A tile with a figure.

import { h, setText } from "./dom.js";

/** A tile: `update(text, note)`. */
export function tile(name) {
  const value = h("p", { class: "figure" }, "–");
  const note = h("p", { class: "faint" });
  return {
    node: h("div", { class: "card tile" }, h("h2", {}, name), value, note),
    update(text, more = "") {
      setText(value, text);
      setText(note, more);
    },
  };
}

/** Tiles in a row: {node, NAME: tile, …}. */
export function tiles(...names) {
  const all = Object.fromEntries(names.map((name) => [name, tile(name)]));
  return { node: h("div", { class: "tiles" }, Object.values(all).map((each) => each.node)), ...all };
}
