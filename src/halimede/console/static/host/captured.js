// The invocations of an endpoint that were captured last.

import { read } from "../calls.js";
import { h, setText, show } from "../dom.js";
import { suggestBody } from "./suggestion.js";

export function capturedView(_, name) {
  const where = h("p", { class: "faint" });
  const note = h("p", { class: "note", role: "status" }, "Reading…");
  const list = h("div", { class: "records" });
  const refresh = h("button", { type: "button", onclick: load }, "Read again");
  const node = h("section", { class: "card" },
    h("div", { class: "heading" }, h("h2", {}, "Captured invocations"), where, h("div", { class: "actions" }, refresh)), note, list);

  async function load() {
    refresh.disabled = true;
    try {
      const document = await read(`/console/captured?${new URLSearchParams({ endpoint: name })}`);
      setText(where, `the last in ${document.where}`);
      setText(note, "Nothing was written in the last 24 hours. Records are written a while after they were captured.");
      note.className = "note";
      show(note, !document.records.length);
      list.replaceChildren(...document.records.map((record) => recordCard(name, record)));
    } catch (error) {
      setText(note, error.message);
      note.className = "note bad";
      show(note, true);
      list.replaceChildren();
    }
    refresh.disabled = false;
  }

  load();
  return { node };
}

function recordCard(name, record) {
  const when = new Date(record.time * 1000);
  const about = [record.variant, record.target_model, record.inference_id && `inference ${record.inference_id}`, record.source].filter(Boolean).join(" · ");
  const again = record.request?.text !== undefined && record.request?.text !== null && h("a", {
    href: `#/endpoint/${encodeURIComponent(name)}/try`,
    onclick: () => suggestBody(name, { body: record.request.text, type: record.request.content_type, model: record.target_model }),
  }, "Try it");
  return h("article", { class: "record" },
    h("h3", {}, h("time", { datetime: when.toISOString() }, when.toLocaleString("en-GB")), " ", h("span", { class: "faint" }, about), " ", again),
    h("div", { class: "pair" }, payload("Request", record.request), payload("Response", record.response)));
}

function payload(title, part) {
  const size = part && `${part.content_type || "no content type"}, ${part.bytes.toLocaleString("en")} bytes`;
  const text = !part ? "It was not captured." : part.text ?? (part.bytes > 65536 ? "It is too long to show." : "It is no text.");
  return h("div", {}, h("h4", {}, title, " ", part && h("span", { class: "faint" }, size)), h("pre", { class: part?.text ? "text long" : "faint", tabindex: part?.text ? "0" : null }, text));
}
