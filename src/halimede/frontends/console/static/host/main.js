// The page of a host.

import { timeChart } from "../charts.js";
import { h, keyed, setText, show } from "../dom.js";
import { age, duration, number } from "../format.js";
import { Columns } from "../history.js";
import { tile } from "../models.js";
import { follow, signWith } from "../server.js";
import { endpointCard } from "./endpoint.js";
import { HostHistory } from "./figures.js";
import { askForKeys, signed } from "./sign.js";
import { activitiesCard, alarmsCard, instancesCard } from "./tables.js";

signWith(signed);

const history = new HostHistory();
const columns = new Columns();
const tiles = Object.fromEntries(["Endpoints", "Requests/s", "Model latency", "Errors/s", "In flight", "Instances", "Alarms"].map((name) => [name, tile(name)]));
const charts = [
  timeChart("Requests per second", [{ name: "requests", series: "rate", colour: "blue", fill: true }, { name: "errors", series: "errors", colour: "red" }], number),
  timeChart("Model latency", [{ name: "mean", series: "latency", colour: "teal" }], duration, { log: true }),
  timeChart("Requests in flight", [{ name: "in flight", series: "inflight", colour: "violet", fill: true }], number),
];
const refused = h("p", { class: "note bad" });
const empty = h("p", { class: "note" }, "There are no endpoints yet: create one with boto3 or a SageMaker SDK.");
const endpoints = h("div", { class: "endpoints" });
const cards = new Map();
const instances = instancesCard();
const alarms = alarmsCard();
const activities = activitiesCard();
document.getElementById("main").append(
  h("h1", { class: "unseen" }, "Host"), refused,
  h("div", { class: "tiles" }, Object.values(tiles).map((each) => each.node)),
  h("div", { class: "charts" }, charts.map((chart) => chart.node)),
  empty, endpoints, instances.node, alarms.node, activities.node);
show(refused, false);
show(empty, false);

const about = h("span", { class: "name" });
const connection = h("span", { class: "connection" }, "Connecting");
document.getElementById("server").append(about, connection, h("button", { type: "button", class: "quiet", onclick: () => askForKeys(listen) }, "Access"));
let stop = null;

function said(snapshot) {
  const all = history.add(snapshot);
  const { host } = snapshot;
  setText(about, `${host.version}, account ${host.account}, ${host.region}, up ${age(snapshot.time - snapshot.started)}`);
  if (all) columns.add(snapshot.time, all);
  for (const chart of charts) chart.update(columns);
  const serving = snapshot.endpoints.filter((each) => each.EndpointStatus === "InService").length;
  const firing = snapshot.alarms.filter((each) => each.StateValue === "ALARM").length;
  const takers = snapshot.instances.filter((each) => each.takes_requests).length;
  const nodes = new Set(snapshot.instances.map((each) => each.node)).size;
  tiles.Endpoints.update(number(snapshot.endpoints.length), `${serving} in service`);
  tiles["Requests/s"].update(number(all?.rate ?? null), "of the last 5 seconds");
  tiles["Model latency"].update(duration(all?.latency ?? null), "mean of the last 5 seconds");
  tiles["Errors/s"].update(number(all?.errors ?? null), "4xx and 5xx");
  tiles["In flight"].update(number(all?.inflight ?? null), "sent to instances");
  tiles.Instances.update(number(snapshot.instances.length), `${takers} take requests, on ${nodes} ${nodes === 1 ? "node" : "nodes"}`);
  tiles.Alarms.update(number(snapshot.alarms.length), `${firing} in alarm`);
  show(empty, !snapshot.endpoints.length);
  keyed(endpoints, cards, snapshot.endpoints.map((each) => each.EndpointName), endpointCard);
  for (const endpoint of snapshot.endpoints) cards.get(endpoint.EndpointName).update(endpoint, history);
  instances.update(snapshot.instances);
  alarms.update(snapshot.alarms);
  activities.update(snapshot.activities);
}

function stateChanged(state) {
  const isRefused = typeof state !== "string";
  setText(connection, isRefused ? "No access" : state === "live" ? "Live" : "Connection lost, trying again");
  connection.className = `connection ${isRefused ? "bad" : state}`;
  show(refused, isRefused);
  if (isRefused) setText(refused, `The host refuses: ${state.message} Give it a key under “Access”.`);
}

function listen() {
  stop?.();
  stop = follow(() => "/console/events", said, stateChanged);
}

listen();
