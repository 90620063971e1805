// A deployment as it proceeds: what is deployed how, how far it has come, and which alarms watch over it.

import { h, keyed, setAttribute, setText, show } from "../dom.js";
import { age, number, percent } from "../format.js";
import { alarmState } from "./alarms.js";

const STAGES = {
  Provisioning: "starting instances of the new fleet", Baking: "watching how the new fleet does", Shrinking: "replacing a batch of the old fleet",
  TerminationWait: "keeping the old fleet for a while", GrowingBack: "rolling back: starting instances of the old fleet",
  ShrinkingBack: "rolling back: ending instances of the new fleet", Stuck: "the rollback failed",
};

/** What is done to a variant, in words; `told` if a note about the deployment says how far it has come. */
export function statusWords({ Status: status, StatusMessage: message }, told) {
  return message && !(told && / % of the requests/.test(message)) ? `${status}: ${message}` : status;
}

/** A note about the deployment of an endpoint, shown while there is one: `update(endpoint, snapshot)`. */
export function deploymentNote() {
  const title = h("p", {});
  const fill = h("span", { class: "fill" });
  const shared = h("p", { class: "split" }, h("span", { class: "track", "aria-hidden": "true" }, fill));
  const share = h("p", {});
  const watched = h("ul", { class: "watched", "aria-label": "Alarms that would roll it back" });
  const rows = new Map();
  const node = h("div", { class: "note deployment", hidden: true }, title, shared, share, watched);
  return {
    node,
    update(endpoint, snapshot) {
      const { PendingDeploymentSummary: pending, Progress: progress, LastDeploymentConfig: config } = endpoint;
      show(node, Boolean(pending));
      if (!pending) return;
      const began = progress?.began ?? new Date(pending.StartTime).getTime() / 1000;
      setText(title, `Deploying ${[pending.EndpointConfigName, progress && strategy(config)].filter(Boolean).join(", ")}, for ${age(snapshot.time - began)}${progress ? `: ${STAGES[progress.stage] ?? progress.stage}` : ""}.`);
      show(shared, Boolean(progress));
      show(share, Boolean(progress));
      if (progress) {
        setAttribute(node, "class", `note deployment ${progress.reason ? "back" : ""}`);
        fill.style.width = `${progress.share * 100}%`;
        const left = progress.until ? `; ${age(Math.max(0, progress.until - snapshot.time))} left of this stage` : "";
        setText(share, `${progress.reason ? `${progress.reason} ` : ""}The new fleet takes ${percent(progress.share)} of the requests${left}.`);
      }
      const names = (config?.AutoRollbackConfiguration?.Alarms ?? []).map((each) => each.AlarmName);
      show(watched, names.length > 0 && Boolean(progress));
      keyed(watched, rows, names, (name) => watchedAlarm(name));
      for (const name of names) rows.get(name).update(snapshot.alarms.find((each) => each.AlarmName === name));
    },
  };
}

function watchedAlarm(name) {
  const pill = h("span", { class: "pill" });
  return {
    node: h("li", {}, `Rolled back if “${name}” goes off `, pill),
    update(alarm) {
      const { text, kind } = alarm ? alarmState(alarm) : { text: "not seen", kind: "" };
      setText(pill, text);
      setAttribute(pill, "class", `pill ${kind}`);
    },
  };
}

/** How a deployment goes, as its configuration says. */
function strategy(config) {
  const rolling = config?.RollingUpdatePolicy;
  if (rolling) return `in batches of ${size(rolling.MaximumBatchSize)}`;
  const routing = config?.BlueGreenUpdatePolicy?.TrafficRoutingConfiguration;
  if (routing?.Type === "CANARY") return `a canary of ${size(routing.CanarySize)} first`;
  if (routing?.Type === "LINEAR") return `in steps of ${size(routing.LinearStepSize)}`;
  return "all at once";
}

const size = ({ Type, Value }) => (Type === "CAPACITY_PERCENT" ? `${number(Value)} %` : `${number(Value)} ${Value === 1 ? "instance" : "instances"}`);
