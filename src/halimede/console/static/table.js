// Cards with tables, whose rows stay the same elements from update to update.

import { h, keyed, setAttribute, setText, show } from "./dom.js";

/**
 * A card with a table: `update(rows)`.
 * `columns` are [name, class]; `empty` is said while there are no rows. A row is {key, cells}, and a cell a text, or
 * {text, kind} for a pill, {text, alert: true} for what is wrong, {text, href} for a link, or {share, text} for a bar; `tag` is shown after a text or a link.
 * Without a title there is no head. `head` are further elements beside the title.
 */
export function tableCard(title, columns, empty, { caption = title, head = [] } = {}) {
  const body = h("tbody");
  const none = h("p", { class: "note" }, empty);
  const scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {},
    h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))), body));
  const count = h("span", { class: "faint" });
  const node = h("section", { class: "card flush" },
    title && h("div", { class: "bar_of_title" }, h("h2", {}, title), count, head), scroll, none);
  const rows = new Map();
  const make = () => {
    const cells = columns.map(([, kind], i) => tableCell(kind, i === 0));
    return { node: h("tr", {}, cells.map((cell) => cell.node)), cells };
  };
  return {
    node,
    update(wanted, note = "") {
      show(scroll, wanted.length > 0);
      show(none, !wanted.length);
      setText(count, note || (wanted.length ? String(wanted.length) : ""));
      keyed(body, rows, wanted.map((each) => each.key), make);
      for (const { key, cells } of wanted) rows.get(key).cells.forEach((cell, i) => cell.update(cells[i]));
    },
    say: (text) => setText(none, text),
  };
}

function tableCell(kind, isHead) {
  const node = h(isHead ? "th" : "td", { class: kind, scope: isHead ? "row" : null });
  let made = "";
  let parts = {};

  /** Have the elements of a kind of cell, made when it is first that kind. */
  function be(what, make) {
    if (made === what) return;
    made = what;
    parts = make();
    node.replaceChildren(...Object.values(parts).filter((part) => !part.parentNode));
  }

  return {
    node,
    update(cell) {
      const { text, kind: pill, href, tag, share, alert } = typeof cell === "object" && cell !== null ? cell : { text: cell };
      setAttribute(node, "class", [kind, alert && "alert"].filter(Boolean).join(" ") || null);
      if (share !== undefined) {
        be("bar", () => {
          const fill = h("span", { class: "fill" });
          const value = h("span", { class: "value" });
          return { fill, value, bar: h("span", { class: "share" }, h("span", { class: "track", "aria-hidden": "true" }, fill), value) };
        });
        parts.fill.style.width = `${Math.min(share ?? 0, 1) * 100}%`;
        setText(parts.value, text);
      } else if (pill !== undefined) {
        be("pill", () => ({ pill: h("span") }));
        setAttribute(parts.pill, "class", `pill ${pill}`);
        setText(parts.pill, text);
      } else {
        be(href === undefined ? "text" : "link", () => ({ text: h(href === undefined ? "span" : "a"), space: " ", tag: h("span", { class: "pill", hidden: true }) }));
        if (href !== undefined) setAttribute(parts.text, "href", href);
        setText(parts.text, text ?? "");
        setText(parts.tag, tag ?? "");
        show(parts.tag, Boolean(tag));
      }
    },
  };
}
