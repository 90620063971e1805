// A log as it goes on, filtered.

import { h, setText, show } from "./dom.js";

const LEVELS = { DEBUG: 10, INFO: 20, WARNING: 30, ERROR: 40, CRITICAL: 50 };
const KEPT = 1000;

/**
 * A card with a log: `add(records)`, `clear()`, `refuse(message)`.
 * A record is {time, level, message, source}, and may have `details` and `words`, which are searched too. `heading` is
 * the element of the title; with `sources` the log can be limited to one source, of which the title is `sources`.
 */
export function logCard(title, { heading = "h1", sources = "", placeholder = "Text" } = {}) {
  const records = [];
  const known = new Set();
  let paused = false;
  const level = h("select", { id: "level", onchange: draw },
    h("option", { value: "10" }, "Everything"), h("option", { value: "30" }, "Warnings and errors"), h("option", { value: "40" }, "Errors"));
  const search = h("input", { id: "search", type: "search", placeholder, oninput: draw });
  const source = h("select", { id: "source", onchange: draw }, h("option", { value: "" }, "all"));
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => { paused = !paused; pause.setAttribute("aria-pressed", String(paused)); draw(); } }, "Pause");
  const count = h("span", { class: "faint" });
  const note = h("p", { class: "note bad", hidden: true });
  const list = h("ol", { class: "log" });
  const scroll = h("div", { class: "scroll log_place", tabindex: "0", role: "region", "aria-label": "Log records" }, list);
  const node = h("section", { class: "card flush" },
    h("div", { class: "bar_of_title" }, h(heading, {}, title), count,
      h("div", { class: "filters" },
        sources && h("label", { for: "source" }, sources), sources && source,
        h("label", { for: "level" }, "Show"), level,
        h("label", { for: "search", class: "unseen" }, "Text to search for"), search, pause)),
    note, scroll);

  function wanted(record) {
    if ((LEVELS[record.level] ?? 20) < Number(level.value)) return false;
    if (source.value && record.source !== source.value) return false;
    const text = search.value.trim().toLowerCase();
    return !text || `${record.message} ${record.source} ${record.words ?? ""} ${record.details ?? ""}`.toLowerCase().includes(text);
  }

  function draw() {
    if (paused) return;
    const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
    const shown = records.filter(wanted);
    list.replaceChildren(...shown.map(line));
    setText(count, shown.length === records.length ? `${records.length} records` : `${shown.length} of ${records.length} records`);
    if (atEnd) scroll.scrollTop = scroll.scrollHeight;
  }

  return {
    node,
    add(more) {
      records.push(...more);
      records.splice(0, Math.max(0, records.length - KEPT));
      for (const { source: name } of more) {
        if (!sources || known.has(name)) continue;
        known.add(name);
        source.append(h("option", { value: name }, name));
      }
      draw();
    },
    clear() {
      records.length = 0;
      draw();
    },
    refuse(message) {
      show(note, Boolean(message));
      setText(note, message);
    },
    latest: () => records[records.length - 1] ?? null,
  };
}

function line(record) {
  const when = new Date(record.time * 1000);
  const time = `${when.toLocaleTimeString("en-GB")}.${String(when.getMilliseconds()).padStart(3, "0")}`;
  return h("li", { class: record.level.toLowerCase() },
    h("time", { datetime: when.toISOString() }, time), h("span", { class: "level" }, record.level),
    h("span", { class: "message" }, record.message, record.details && h("pre", { tabindex: "0" }, record.details)),
    h("span", { class: "faint" }, record.source));
}
