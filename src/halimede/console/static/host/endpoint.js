// One endpoint: its figures, models, captured invocations and logs, and a form to try it.

import { h, setText, show } from "../dom.js";
import { duration, number } from "../format.js";
import { viewHead } from "../sections.js";
import { tiles } from "../tile.js";
import { activitiesCard, alarmsCard, changesCard } from "./alarms.js";
import { capturedView } from "./captured.js";
import { invocationCharts } from "./charts.js";
import { aboutEndpoint, counted, endpointCard, statusPill } from "./endpoint_card.js";
import { instancesCard } from "./instances.js";
import { endpointLogs } from "./logs.js";
import { modelsView } from "./models.js";
import { tryEndpoint } from "./try.js";

const SECTIONS = {
  "": ["Figures", figuresView, () => true],
  models: ["Models", modelsView, (endpoint) => endpoint.MultiModel],
  captured: ["Captured", capturedView, (endpoint) => Boolean(endpoint.DataCaptureConfig)],
  logs: ["Logs", endpointLogs, () => true],
  try: ["Try it", tryEndpoint, () => true],
};

export function endpointView(history, name, section = "") {
  const pill = statusPill();
  const about = h("p", { class: "faint" });
  const gone = h("p", { class: "note", hidden: true }, "There is no such endpoint.");
  const keys = Object.keys(SECTIONS);
  const chosen = keys.includes(section) ? section : "";
  const head = viewHead(["#/", "Endpoints"], name, [pill.node, about], keys.map((key) => [`#/endpoint/${encodeURIComponent(name)}${key && `/${key}`}`, SECTIONS[key][0], key === chosen]));
  const content = SECTIONS[chosen][1](history, name);
  const node = h("div", {}, head.node, gone, content.node);
  show(pill.node, false);
  return {
    node,
    update() {
      const endpoint = history.endpoint(name);
      show(gone, !endpoint);
      show(pill.node, Boolean(endpoint));
      show(content.node, Boolean(endpoint) || chosen === "logs"); // logs stay when an endpoint is gone
      keys.forEach((key, i) => show(head.links[i], key === chosen || Boolean(endpoint && SECTIONS[key][2](endpoint))));
      if (!endpoint) return;
      pill.update(endpoint);
      setText(about, aboutEndpoint(endpoint));
      content.update?.(endpoint);
    },
    close: () => content.close?.(),
  };
}

function figuresView(history, name) {
  const heads = tiles("Requests/s", "Latency p50", "Latency p99", "Errors/s", "In flight", "Instances", "Invocations");
  const charts = invocationCharts();
  const card = endpointCard(name);
  const captured = captureTiles();
  const instances = instancesCard({ endpoint: false });
  const alarms = alarmsCard();
  const changes = changesCard();
  const activities = activitiesCard();
  const node = h("div", {}, heads.node, h("div", { class: "charts" }, charts.map((chart) => chart.node)),
    card.node, captured.node, instances.node, alarms.node, changes.node, activities.node);

  function update(endpoint) {
    const { instances: all, alarms: every, alarm_changes: changed, activities: done } = history.latest;
    const point = history.endpoints.get(name);
    const own = all.filter((each) => each.endpoint === name);
    const errors = counted(endpoint, "Invocation4XXErrors") + counted(endpoint, "Invocation5XXErrors");
    heads["Requests/s"].update(number(point?.rate ?? null), "of the last 5 seconds");
    heads["Latency p50"].update(duration(point?.p50 ?? null), "of models");
    heads["Latency p99"].update(duration(point?.p99 ?? null), "of the last 5 seconds");
    heads["Errors/s"].update(number(point?.errors ?? null), "4xx and 5xx");
    heads["In flight"].update(number(point?.inflight ?? null), endpoint.Backlog === null ? "sent to instances" : `${number(endpoint.Backlog)} in the queue`);
    const takers = own.filter((each) => each.takes_requests).length;
    heads.Instances.update(number(own.length), `${takers} ${takers === 1 ? "takes" : "take"} requests`);
    heads.Invocations.update(number(counted(endpoint, "Invocations")), `${number(errors)} errors, since the host was started`);
    const columns = history.columns.get(name);
    if (columns) for (const chart of charts) chart.update(columns);
    card.update(endpoint, history);
    captured.update(endpoint);
    instances.update(own);
    const watching = (endpoint.LastDeploymentConfig?.AutoRollbackConfiguration?.Alarms ?? []).map((each) => each.AlarmName);
    const ours = every.filter((each) => watching.includes(each.AlarmName) || isAbout(each, name));
    const names = new Set(ours.map((each) => each.AlarmName));
    alarms.update(ours);
    changes.update(changed.filter((each) => names.has(each.AlarmName)));
    activities.update(done.filter((each) => each.ResourceId.startsWith(`endpoint/${name}/`)));
  }

  return { node, update, close: () => charts.forEach((chart) => chart.close()) };
}

/** Whether an alarm is on a metric of the endpoint. */
function isAbout(alarm, name) {
  const metrics = [alarm, ...(alarm.Metrics ?? []).map((each) => each.MetricStat?.Metric ?? {})];
  return metrics.some(({ Dimensions }) => (Dimensions ?? []).some((each) => each.Name === "EndpointName" && each.Value === name));
}

/** What has become of captured invocations. */
function captureTiles() {
  const heads = tiles("Captured", "Written", "Left out", "Lost", "Failed writes");
  const node = h("section", { class: "capture" }, h("h2", {}, "Data capture"), heads.node);
  return {
    node,
    update(endpoint) {
      const capture = endpoint.DataCaptureConfig;
      show(node, Boolean(capture));
      if (!capture) return;
      const count = (metric) => number(counted(endpoint, metric));
      heads.Captured.update(count("DataCaptureRecords"), `${capture.CaptureStatus?.toLowerCase() ?? ""}, ${number(capture.CurrentSamplingPercentage ?? 100)} % of invocations`);
      heads.Written.update(count("DataCaptureRecordsUploaded"), `to ${capture.DestinationS3Uri}`);
      heads["Left out"].update(count("DataCaptureRecordsTooLarge"), "too large");
      heads.Lost.update(count("DataCaptureRecordsDropped"), "no room in memory or on the disk");
      heads["Failed writes"].update(count("DataCaptureUploadFailures"), "tried again");
    },
  };
}
