// The head of a view of one thing: where it belongs, what it is called, and its sections.

import { h } from "./dom.js";

/**
 * The head of a view. `above` is [href, title] of the view that lists such things, `parts` are shown beside the name,
 * `sections` are [href, title, whether it is shown]. Gives {node, links}: the elements of the sections' links.
 */
export function viewHead(above, name, parts, sections) {
  const links = sections.map(([href, title, current]) => h("li", {}, h("a", { href, "aria-current": current && "page" }, title)));
  const nav = h("nav", { "aria-label": "Sections", class: "sections" }, h("ul", {}, links));
  const node = h("div", {},
    h("nav", { "aria-label": "Breadcrumb", class: "crumbs" }, h("a", { href: above[0] }, above[1]), " / ", name),
    h("div", { class: "heading" }, h("h1", {}, name), parts), nav);
  return { node, nav, links };
}
