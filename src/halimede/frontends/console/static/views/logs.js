// The log as it goes on, filtered.

import { h, setText, show } from "../dom.js";
import { follow } from "../server.js";

const LEVELS = { DEBUG: 10, INFO: 20, WARNING: 30, ERROR: 40, CRITICAL: 50 };
const KEPT = 1000;

export function logsView() {
  const records = [];
  let paused = false;
  const level = h("select", { id: "level", onchange: draw },
    h("option", { value: "10" }, "Everything"), h("option", { value: "30" }, "Warnings and errors"), h("option", { value: "40" }, "Errors"));
  const search = h("input", { id: "search", type: "search", placeholder: "Text, file or model", oninput: draw });
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => { paused = !paused; pause.setAttribute("aria-pressed", String(paused)); draw(); } }, "Pause");
  const count = h("span", { class: "faint" });
  const note = h("p", { class: "note", hidden: true });
  const list = h("ol", { class: "log" });
  const scroll = h("div", { class: "scroll log_place", tabindex: "0", role: "region", "aria-label": "Log records" }, list);
  const node = h("section", { class: "card flush" },
    h("div", { class: "bar_of_title" }, h("h1", {}, "Log"), count,
      h("label", { for: "level" }, "Show"), level, h("label", { for: "search", class: "unseen" }, "Text to search for"), search, pause),
    note, scroll);

  function wanted(record) {
    if ((LEVELS[record.level] ?? 20) < Number(level.value)) return false;
    const text = search.value.trim().toLowerCase();
    return !text || `${record.message} ${record.place} ${record.model} ${record.details}`.toLowerCase().includes(text);
  }

  function draw() {
    if (paused) return;
    const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
    const shown = records.filter(wanted);
    list.replaceChildren(...shown.map(line));
    setText(count, shown.length === records.length ? `${records.length} records` : `${shown.length} of ${records.length} records`);
    if (atEnd) scroll.scrollTop = scroll.scrollHeight;
  }

  function add(more) {
    records.push(...more);
    records.splice(0, Math.max(0, records.length - KEPT));
    draw();
  }

  const stop = follow(() => `/v2/console/logs?after=${records.length ? records[records.length - 1].number : 0}`, add, (state) => {
    const refused = typeof state !== "string";
    show(note, refused);
    if (refused) setText(note, state.message);
  });
  return { node, close: stop };
}

function line(record) {
  const when = new Date(record.time * 1000);
  const time = `${when.toLocaleTimeString("en-GB")}.${String(when.getMilliseconds()).padStart(3, "0")}`;
  return h("li", { class: record.level.toLowerCase() },
    h("time", { datetime: when.toISOString() }, time), h("span", { class: "level" }, record.level),
    h("span", { class: "message" }, record.message, record.details && h("pre", {}, record.details)),
    h("span", { class: "faint" }, record.model || record.place));
}
