// All endpoints at a glance, with alarms and what autoscaling did.

import { h, keyed, setText, show } from "../dom.js";
import { duration, number } from "../format.js";
import { tiles } from "../tile.js";
import { activitiesCard, alarmsCard, changesCard } from "./alarms.js";
import { invocationCharts } from "./charts.js";
import { endpointCard } from "./endpoint_card.js";

const EMPTY = "There are no endpoints yet: create one with boto3 or a SageMaker SDK.";

/** Those that failed come first, then those that are being changed. */
const rank = ({ EndpointStatus: status }) => (status === "Failed" ? 0 : status === "InService" ? 2 : 1);

export function overviewView(history) {
  const heads = tiles("Endpoints", "Requests/s", "Latency p50", "Latency p99", "Errors/s", "Instances", "Alarms");
  const charts = invocationCharts();
  const search = h("input", { type: "search", id: "filter", placeholder: "Filter by name", oninput: () => update() });
  const summary = h("span", { class: "faint" });
  const bar = h("div", { class: "bar_of_title bare" }, h("h2", {}, "Endpoints"), summary, h("label", { for: "filter", class: "unseen" }, "Filter endpoints by name"), search);
  const empty = h("p", { class: "note" });
  const endpoints = h("div", { class: "endpoints" });
  const cards = new Map();
  const alarms = alarmsCard();
  const changes = changesCard();
  const activities = activitiesCard();
  const node = h("div", {},
    h("h1", { class: "unseen" }, "Overview"),
    heads.node,
    h("div", { class: "charts" }, charts.map((chart) => chart.node)),
    bar, empty, endpoints, alarms.node, changes.node, activities.node);
  show(empty, false);
  show(bar, false);

  function update() {
    const snapshot = history.latest;
    if (!snapshot) return;
    const { total } = history;
    const failed = snapshot.endpoints.filter((each) => each.EndpointStatus === "Failed").length;
    const serving = snapshot.endpoints.filter((each) => each.EndpointStatus === "InService").length;
    const firing = snapshot.alarms.filter((each) => each.StateValue === "ALARM").length;
    const takers = snapshot.instances.filter((each) => each.takes_requests).length;
    const nodes = new Set(snapshot.instances.map((each) => each.node)).size;
    heads.Endpoints.update(number(snapshot.endpoints.length), `${serving} in service${failed ? `, ${failed} failed` : ""}`);
    heads["Requests/s"].update(number(total?.rate ?? null), "of the last 5 seconds");
    heads["Latency p50"].update(duration(total?.p50 ?? null), "of models");
    heads["Latency p99"].update(duration(total?.p99 ?? null), "of the last 5 seconds");
    heads["Errors/s"].update(number(total?.errors ?? null), "4xx and 5xx");
    heads.Instances.update(number(snapshot.instances.length), `${takers} ${takers === 1 ? "takes" : "take"} requests, on ${nodes} ${nodes === 1 ? "node" : "nodes"}`);
    heads.Alarms.update(number(snapshot.alarms.length), `${firing} in alarm`);
    for (const chart of charts) chart.update(history.all);
    const text = search.value.trim().toLowerCase();
    const wanted = snapshot.endpoints.filter((each) => each.EndpointName.toLowerCase().includes(text));
    wanted.sort((one, other) => rank(one) - rank(other));
    show(bar, snapshot.endpoints.length > 1);
    setText(summary, text ? `${wanted.length} of ${snapshot.endpoints.length}` : String(snapshot.endpoints.length));
    setText(empty, snapshot.endpoints.length ? "No endpoint has such a name." : EMPTY);
    show(empty, !wanted.length);
    keyed(endpoints, cards, wanted.map((each) => each.EndpointName), (name) => endpointCard(name, { linked: true }));
    for (const endpoint of wanted) cards.get(endpoint.EndpointName).update(endpoint, history);
    alarms.update(snapshot.alarms);
    changes.update(snapshot.alarm_changes);
    activities.update(snapshot.activities);
  }

  return { node, update, close: () => charts.forEach((chart) => chart.close()) };
}
