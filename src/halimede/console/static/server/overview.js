// All models at a glance.

import { timeChart } from "../charts.js";
import { h, keyed, setText, show } from "../dom.js";
import { age, bytes, duration, number, percent } from "../format.js";
import { failures, keyOf, ofClients } from "./history.js";
import { tableCard } from "../table.js";
import { tiles } from "../tile.js";
import { controls, linkTo, statePill, unloaded } from "./models.js";

const COLUMNS = [
  ["Model", ""], ["State", ""], ["Requests/s", "n"], ["p50", "n"], ["p99", "n"], ["Queued", "n"],
  ["Batch", "n"], ["Failed", "n"], ["Memory", "n"], ["Instances", "n"], ["Actions", ""],
];

export function overviewView(history) {
  const heads = tiles("Requests/s", "Latency p50", "Latency p99", "Queued", "Failed", "Client errors", "Memory of models", "Processor");
  const charts = [
    timeChart("Requests per second", [{ name: "answered", series: "rate", colour: "blue", fill: true }, { name: "failed", series: "failed", colour: "red" }, { name: "cancelled", series: "cancelled", colour: "orange" }], number),
    timeChart("Latency", [{ name: "p50", series: "p50", colour: "teal" }, { name: "p99", series: "p99", colour: "orange" }], duration, { log: true }),
    timeChart("Requests in the server", [{ name: "in flight", series: "inflight", colour: "violet", fill: true }, { name: "queued", series: "pending", colour: "orange" }], number),
  ];
  const answers = tableCard("Answers", [["Protocol", ""], ["Status", ""], ["Answers", "n"], ["Per second", "n"]], "There was no request yet.");
  const internal = tableCard("Failures of the server", [["What failed", ""], ["Error", ""], ["Time", ""]], "");
  const search = h("input", { type: "search", id: "filter", placeholder: "Filter by name", oninput: () => update() });
  const body = h("tbody");
  const empty = h("p", { class: "note" }, "There are no models yet. The server loads what is in its model repository.");
  const summary = h("p", { class: "faint" });
  const table = h("table", { class: "models" },
    h("caption", { class: "unseen" }, "Models and their versions"),
    h("thead", {}, h("tr", {}, COLUMNS.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
    body);
  const rows = new Map();
  const node = h("div", {},
    h("h1", { class: "unseen" }, "Overview"),
    heads.node,
    internal.node,
    h("div", { class: "charts" }, charts.map((chart) => chart.node)),
    h("section", { class: "card flush" },
      h("div", { class: "bar_of_title" }, h("h2", {}, "Models"), summary,
        h("label", { for: "filter", class: "unseen" }, "Filter models by name"), search),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Models" }, table), empty),
    answers.node);

  function update() {
    const snapshot = history.latest;
    if (!snapshot) return;
    updateTiles(history, heads);
    for (const chart of charts) chart.update(history.all);
    answers.update(history.answers.map(({ protocol, status, count, rate }) => (
      { key: `${protocol} ${status}`, cells: [protocol, status, number(count), number(rate)] })));
    show(internal.node, snapshot.failures.length > 0);
    internal.update(snapshot.failures.map(({ time, what, error }, i) => (
      { key: `${time} ${i}`, cells: [what, { text: error, alert: true }, `${age(snapshot.time - time)} ago`] })), "the log has more");
    const wanted = search.value.trim().toLowerCase();
    const models = snapshot.models.filter((model) => model.name.toLowerCase().includes(wanted));
    models.sort((one, other) => hasFailed(other) - hasFailed(one)); // those that failed come first
    const byKey = new Map(models.map((model) => [keyOf(model), model]));
    keyed(body, rows, [...byKey.keys()], modelRow);
    for (const [key, row] of rows) row.update(byKey.get(key), history.current.get(key), snapshot.server.loads_on_request);
    const ready = snapshot.models.filter((model) => model.state === "READY").length;
    const failed = snapshot.models.filter(hasFailed).length;
    setText(summary, `${ready} ready${failed ? `, ${failed} failed` : ""}`);
    setText(empty, snapshot.models.length ? "No model has such a name." : "There are no models yet. The server loads what is in its model repository.");
    show(empty, !models.length);
    show(table, Boolean(models.length));
  }

  return { node, update, close: () => charts.forEach((chart) => chart.close()) };
}

const hasFailed = (model) => model.state === "UNAVAILABLE" && !unloaded(model);

function updateTiles(history, heads) {
  const { latest, total, cpu } = history;
  const models = latest.models.filter((model) => model.counters);
  const count = (what) => models.reduce((sum, model) => sum + what(model), 0);
  const clientErrors = latest.traffic.reduce((sum, each) => sum + each.client_errors, 0);
  const connections = latest.traffic.reduce((sum, each) => sum + each.connections, 0);
  const { budget_bytes: budget, held_bytes: held } = latest.memory;
  heads["Requests/s"].update(number(total?.rate ?? null), `${number(count(ofClients.success))} answered in all`);
  heads["Latency p50"].update(duration(total?.p50 ?? null), "from receipt to response");
  heads["Latency p99"].update(duration(total?.p99 ?? null), "of the last 5 seconds");
  heads.Queued.update(number(total?.pending ?? null), `${number(total?.inflight ?? null)} in flight`);
  const notes = [`${number(total?.failed ?? 0)}/s now`, `${number(count(ofClients.cancelled))} cancelled`];
  if (latest.refused) notes.push(`${number(latest.refused)} refused at the door`);
  heads.Failed.update(number(count(ofClients.failures)), notes.join(", "));
  heads["Client errors"].update(number(clientErrors), "answers such as 4xx, over all protocols");
  heads["Memory of models"].update(bytes(held), budget === null ? "no budget is set" : `${percent(held / budget)} of ${bytes(budget)}`);
  heads.Processor.update(cpu === null ? "–" : `${cpu.toFixed(2)} cores`, `${bytes(latest.process.resident_bytes)}, ${number(connections)} connections`);
}

function modelRow() {
  const name = h("a", {});
  const version = h("span", { class: "faint" });
  const reason = h("p", { class: "reason" });
  const pill = statePill();
  const buttons = controls();
  const cells = Array.from({ length: 8 }, () => h("td", { class: "n" }));
  const node = h("tr", {},
    h("th", { scope: "row" }, name, " ", version, reason),
    h("td", {}, pill.node), cells, h("td", {}, buttons.node));
  return {
    node,
    update(model, point, allowed) {
      setText(name, model.name);
      name.setAttribute("href", linkTo(model));
      setText(version, [model.version && `v${model.version}`, model.platform, model.namespace].filter(Boolean).join(" · "));
      const why = unloaded(model) ? "" : model.reason;
      setText(reason, why);
      show(reason, Boolean(why));
      pill.update(model);
      buttons.update(model, allowed);
      const busy = model.instances?.filter((instance) => instance.state === "running").length;
      const texts = model.counters
        ? [number(point?.rate ?? null), duration(point?.p50 ?? null), duration(point?.p99 ?? null), number(model.pending), number(point?.batch ?? null),
          number(failures(model)), model.memory_bytes ? bytes(model.memory_bytes) : "–", model.instances.length ? `${busy}/${model.instances.length} busy` : "–"]
        : Array(8).fill("");
      cells.forEach((cell, i) => setText(cell, texts[i]));
      cells[5].className = model.counters && failures(model) ? "n alert" : "n";
    },
  };
}
