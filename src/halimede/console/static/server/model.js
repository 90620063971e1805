// One version of a model: its figures, its instances, and a form to try it.

import { bars, timeChart } from "../charts.js";
import { h, setText, show } from "../dom.js";
import { bytes, duration, number, percent } from "../format.js";
import { cancelled, failures } from "./history.js";
import { viewHead } from "../sections.js";
import { tableCard } from "../table.js";
import { tiles } from "../tile.js";
import { controls, statePill, unloaded } from "./models.js";
import { tryIt } from "../try_it/form.js";

const CLOSINGS = {
  full: "batch was full", "preferred size": "preferred size reached", "delay over": "queue delay was over",
  "instance free": "an instance was free", "other shapes": "next request had other shapes",
  "max tokens": "limit of tokens reached",
};
const FAILURES = { REJECTED: "rejected: queue full, late or unloading", CANCELED: "cancelled by the client", BACKEND: "the model failed", OTHER: "other" };
const SCHEDULERS = { default: "no batching", dynamic: "dynamic batching", sequence: "sequences", ensemble: "ensemble" };

const KINDS = { running: "busy", failed: "bad", restarting: "bad" };

const SECTIONS = { "": "Figures", try: "Try it" };

export function modelView(history, name, version, section = "") {
  const pill = statePill();
  const buttons = controls();
  const about = h("p", { class: "faint" });
  const reason = h("p", { class: "note bad" });
  const gone = h("p", { class: "note" }, "There is no such model.");
  const heads = tiles("Requests/s", "Latency p50", "Latency p99", "Queued", "Batch", "Failed", "Memory");
  const charts = [
    timeChart("Requests per second", [{ name: "answered", series: "rate", colour: "blue", fill: true }, { name: "failed", series: "failed", colour: "red" }, { name: "cancelled", series: "cancelled", colour: "orange" }], number),
    timeChart("Latency", [{ name: "p50", series: "p50", colour: "teal" }, { name: "p99", series: "p99", colour: "orange" }], duration, { log: true }),
    timeChart("Requests in the server", [{ name: "in flight", series: "inflight", colour: "violet", fill: true }, { name: "queued", series: "pending", colour: "orange" }], number),
    timeChart("Where the time goes, per request", [
      { name: "queue", series: "queue_us", colour: "orange" }, { name: "inputs", series: "input_us", colour: "violet" },
      { name: "model", series: "infer_us", colour: "blue" }, { name: "outputs", series: "output_us", colour: "teal" }], duration, { log: true }),
  ];
  const sizes = bars("Batch sizes", number, "No batch has run while this page was open.");
  const closings = bars("Why batches were closed", number, "No dynamic batch has run while this page was open.", { tint: "teal" });
  const tokens = bars("Tokens", number, "No batch has run while this page was open.", { tint: "violet" });
  const reasons = bars("Failures and cancellations", number, "No request has failed or was cancelled while this page was open.", { tint: "red" });
  const cache = bars("Response cache", number, "The cache was not asked while this page was open.", { tint: "violet" });
  const instances = instanceTable();
  const trial = tryIt(name, version);
  const figures = h("div", {},
    heads.node,
    h("div", { class: "charts two" }, charts.map((chart) => chart.node)),
    h("div", { class: "charts" }, sizes.node, closings.node, tokens.node, reasons.node, cache.node),
    instances.node);
  const address = (key) => `#/model/${encodeURIComponent(name)}/${encodeURIComponent(version)}${key && `/${key}`}`;
  const head = viewHead(["#/", "Models"], name, [pill.node, about, buttons.node], Object.entries(SECTIONS).map(([key, title]) => [address(key), title, key === section]));
  const node = h("div", {}, head.node, reason, gone, figures, trial.node);
  for (const each of [gone, figures, trial.node, head.nav]) show(each, false);

  function update() {
    const snapshot = history.latest;
    const model = snapshot?.models.find((each) => each.name === name && each.version === (version ?? ""))
      ?? snapshot?.models.find((each) => each.name === name);
    show(gone, !model);
    show(figures, Boolean(model?.counters) && section === "");
    show(head.nav, Boolean(model?.counters));
    if (!model) return;
    const key = `${model.namespace}/${model.name}/${model.version}`;
    pill.update(model);
    buttons.update(model, snapshot.server.loads_on_request);
    setText(about, describe(model));
    const why = unloaded(model) ? "" : model.reason;
    setText(reason, why);
    show(reason, Boolean(why));
    if (section === "try") trial.update(model, snapshot.server.openai);
    if (!model.counters || section !== "") return;
    const point = history.current.get(key);
    const columns = history.columns.get(key);
    const grown = history.grown(key);
    updateTiles(heads, snapshot, model, point);
    for (const chart of charts) chart.update(columns);
    sizes.update(sizeRows(snapshot.bounds.batch_size, grown.batch_size));
    closings.update(rowsOf(grown.closings, CLOSINGS));
    reasons.update(rowsOf(grown.failures, FAILURES));
    cache.update([["hits", grown.hits], ["misses", grown.misses]].filter(([, count]) => count));
    show(closings.node, model.scheduler === "dynamic");
    tokens.update([["text", grown.tokens], ["padding", grown.padding]].filter(([, count]) => count));
    show(tokens.node, model.counters.tokens > 0);
    show(cache.node, model.cached);
    instances.update(model.instances);
  }

  return {
    node,
    update,
    close() {
      charts.forEach((chart) => chart.close());
      trial.close();
    },
  };
}

function describe(model) {
  const parts = [model.version && `version ${model.version}`, model.platform, SCHEDULERS[model.scheduler]];
  if (model.max_batch_size) parts.push(`batches up to ${model.max_batch_size}`);
  if (model.delay_us) parts.push(`queue delay ${duration(model.delay_us)}`);
  if (model.decoupled) parts.push("decoupled");
  if (model.load_s !== undefined) parts.push(`loaded in ${duration(model.load_s * 1e6)}`);
  return parts.filter(Boolean).join(" · ");
}

function updateTiles(heads, snapshot, model, point) {
  const { budget_bytes: budget } = snapshot.memory;
  heads["Requests/s"].update(number(point?.rate ?? null), `${number(model.counters.success)} answered in all`);
  heads["Latency p50"].update(duration(point?.p50 ?? null), "from receipt to response");
  heads["Latency p99"].update(duration(point?.p99 ?? null), "of the last 5 seconds");
  heads.Queued.update(number(model.pending), `${number(model.inflight)} in flight`);
  heads.Batch.update(number(point?.batch ?? null), `${number(point?.executions ?? null)} executions/s`);
  heads.Failed.update(number(failures(model)), `${number(point?.failed ?? null)}/s now, ${number(cancelled(model))} cancelled`);
  heads.Memory.update(bytes(model.memory_bytes), budget === null ? "no budget is set" : `${percent(model.memory_bytes / budget)} of the budget`);
}

function sizeRows(bounds, counts) {
  const rows = counts.map((count, i) => {
    const low = i ? bounds[i - 1] + 1 : 1;
    const high = bounds[i];
    return [high === undefined ? `over ${bounds[i - 1]}` : low === high ? `${low}` : `${low}–${high}`, count];
  });
  let last = rows.length;
  while (last > 1 && !rows[last - 1][1]) last -= 1;
  return rows.slice(0, last);
}

const rowsOf = (counts, names) => Object.entries(counts).map(([key, count]) => [names[key] ?? key, count]);

const DOING = [["Instance", ""], ["Doing", ""], ["Device", ""], ["Runs in", ""]];

function instanceTable() {
  const card = tableCard("Instances", DOING, "");
  return {
    node: card.node,
    update(instances) {
      show(card.node, instances.length > 0);
      card.update(instances.map((each) => {
        const doing = each.state === "running" ? `running ${each.requests}` : each.state;
        const state = { text: each.reason ? `${doing}: ${each.reason}` : doing, kind: each.slow_s ? "bad" : KINDS[each.state] };
        return { key: each.name, cells: [each.name, state, each.device, each.place] };
      }));
    },
  };
}
