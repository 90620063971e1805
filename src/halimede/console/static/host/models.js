// Which instances of a multi-model endpoint hold which models.

import { follow } from "../calls.js";
import { h, keyed, setText, show } from "../dom.js";
import { age, bytes, number } from "../format.js";
import { tableCard } from "../table.js";

const STATES = {
  ABSENT: ["not there", ""], DOWNLOADING: ["downloading", "busy"], ON_DISK: ["on disk", ""], LOADING: ["loading", "busy"],
  LOADED: ["loaded", "good"], UNLOADING: ["unloading", "busy"], REMOVING: ["removing", "busy"],
};
const COLUMNS = [["Model", ""], ["State", ""], ["Instance", "one"], ["Memory", "n"], ["Files", "n"], ["In flight", "n"], ["Waiting", "n"], ["Last used", "one"], ["Failure", ""]];

export function modelsView(_, name) {
  const search = h("input", { type: "search", id: "model_filter", placeholder: "Filter by name", oninput: typed });
  const bar = h("div", { class: "line" }, h("label", { for: "model_filter" }, "Models whose names contain"), search);
  const note = h("p", { class: "note bad", hidden: true });
  const place = h("div", {});
  const cards = new Map();
  const node = h("div", {}, bar, note, place);
  let stop = null;
  let timer = 0;

  function typed() {
    clearTimeout(timer);
    timer = setTimeout(listen, 300);
  }

  function taken(document) {
    show(note, !document.variants.length);
    setText(note, "No variant of the endpoint has many models.");
    const byKey = new Map(document.variants.map((each) => [`${each.config}/${each.variant}`, each]));
    keyed(place, cards, [...byKey.keys()], (key) => variantCard(byKey.get(key)));
    for (const [key, card] of cards) card.update(byKey.get(key));
  }

  function listen() {
    stop?.();
    const query = new URLSearchParams({ endpoint: name, text: search.value.trim() });
    stop = follow(() => `/console/models?${query}`, taken, (state) => {
      show(note, typeof state !== "string");
      setText(note, state.message ?? "");
    });
  }

  listen();
  return { node, close() { clearTimeout(timer); stop(); } };
}

function variantCard({ variant, config }) {
  const card = tableCard(`Models of ${variant}`, COLUMNS, "No instance has any model: models are loaded when they are first asked for.");
  const instances = tableCard(`Memory of ${variant}`, [["Instance", ""], ["Models held", "n"], ["Memory of models", ""]], "No instance takes requests.");
  return {
    node: h("div", { "data-config": config }, instances.node, card.node),
    update(now) {
      instances.update(now.instances.map(({ id, loaded, used_bytes: used, budget_bytes: budget }) => ({
        key: id, cells: [id, number(loaded), { share: budget ? used / budget : 0, text: `${bytes(used)} of ${bytes(budget)}` }],
      })));
      const told = now.models.length;
      const note = now.matching > told ? `the ${told} that were used last, of ${number(now.matching)}` : number(now.matching);
      card.update(now.models.flatMap(({ model, copies }) => copies.map((copy) => modelRow(model, copy))), note);
      card.say(now.known ? "No model has such a name." : "No instance has any model: models are loaded when they are first asked for.");
    },
  };
}

function modelRow(model, copy) {
  const [text, kind] = STATES[copy.state] ?? [copy.state, ""];
  return {
    key: `${model} ${copy.instance}`,
    cells: [model, copy.failure ? { text: "failed", kind: "bad" } : { text, kind }, copy.instance, copy.memory_bytes ? bytes(copy.memory_bytes) : "–",
      copy.disk_bytes ? bytes(copy.disk_bytes) : "–", number(copy.in_flight), number(copy.waiting),
      copy.unused_s === null ? "never" : copy.unused_s < 1 ? "now" : `${age(copy.unused_s)} ago`, { text: copy.failure, alert: Boolean(copy.failure) }],
  };
}
