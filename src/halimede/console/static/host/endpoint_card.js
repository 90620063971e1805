// One endpoint: its variants with their traffic, a deployment as it proceeds, and what is captured.

import { h, setAttribute, setText, show } from "../dom.js";
import { duration, number, percent } from "../format.js";
import { tableCard } from "../table.js";
import { deploymentNote, statusWords } from "./deployment.js";

const KINDS = { InService: "good", Failed: "bad", RollingBack: "warn", UpdateRollbackFailed: "bad" };
const COLUMNS = [["Variant", ""], ["Configuration", ""], ["Traffic", ""], ["Requests/s", "n"], ["p50", "n"], ["p99", "n"], ["Errors/s", "n"], ["In flight", "n"], ["Instances", "n"], ["Now", ""]];

/** The status of an endpoint as a pill: `update(endpoint)`. */
export function statusPill() {
  const node = h("span", { class: "pill" });
  return {
    node,
    update(endpoint) {
      setText(node, endpoint.EndpointStatus);
      setAttribute(node, "class", `pill ${KINDS[endpoint.EndpointStatus] ?? "busy"}`);
    },
  };
}

/** What an endpoint is, in a few words. */
export const aboutEndpoint = (endpoint) => [
  endpoint.EndpointConfigName, endpoint.MultiModel && "many models", endpoint.AsyncInferenceConfig && "asynchronous",
].filter(Boolean).join(" · ");

/** The card of an endpoint: `update(endpoint, history)`; `linked` puts its name, with a link to its view, above. */
export function endpointCard(name, { linked = false } = {}) {
  const pill = statusPill();
  const about = h("span", { class: "faint" });
  const reason = h("p", { class: "note bad" });
  const deployment = deploymentNote();
  const captured = h("p", { class: "faint captured" });
  const variants = tableCard(linked ? "" : "Variants", COLUMNS, "No variant is there yet.", { caption: `Variants of ${name}` });
  variants.node.className = "variants";
  const title = linked && h("div", { class: "bar_of_title" }, h("h2", {}, h("a", { href: `#/endpoint/${name}` }, name)), pill.node, about);
  const node = h("section", { class: "card flush" }, title, reason, deployment.node, variants.node, captured);
  return {
    node,
    update(endpoint, history) {
      pill.update(endpoint);
      setText(about, aboutEndpoint(endpoint));
      setText(reason, endpoint.FailureReason ?? "");
      show(reason, Boolean(endpoint.FailureReason));
      deployment.update(endpoint, history.latest);
      variants.update(variantsOf(endpoint).map((each) => variantRow(endpoint, each, history)));
      const capture = endpoint.DataCaptureConfig;
      setText(captured, capture ? `Data capture ${(capture.CaptureStatus ?? "").toLowerCase()}: ${number(counted(endpoint, "DataCaptureRecords"))} invocations captured, to ${capture.DestinationS3Uri}` : "");
      show(captured, Boolean(capture));
    },
  };
}

/** How many of something its variants have counted. */
export const counted = (endpoint, metric) => endpoint.Figures.reduce((sum, each) => sum + (each.sums[metric] ?? 0), 0);

/** The variants of an endpoint's fleets, each with its share of the requests: null for a shadow, which gets copies. */
function variantsOf(endpoint) {
  const pending = endpoint.PendingDeploymentSummary;
  const of = (list, tag, config) => {
    const fleet = endpoint.Shares[config] ?? (tag === "new" ? 0 : 1);
    const whole = (list ?? []).reduce((sum, each) => sum + each.CurrentWeight, 0);
    return (list ?? []).map((each) => ({ ...each, tag, config, share: tag === "shadow" ? null : whole ? (fleet * each.CurrentWeight) / whole : 0 }));
  };
  return [
    ...of(endpoint.ProductionVariants, "", endpoint.EndpointConfigName),
    ...of(endpoint.ShadowProductionVariants, "shadow", endpoint.EndpointConfigName),
    ...of(pending?.ProductionVariants, "new", pending?.EndpointConfigName),
  ];
}

function variantRow(endpoint, variant, history) {
  const { VariantName: name, tag, config, share } = variant;
  const apart = history.fleets.get(`${endpoint.EndpointName}/${config}/${name}`);
  const figures = apart ?? (tag === "new" ? null : history.variants.get(`${endpoint.EndpointName}/${name}`));
  return {
    key: `${tag}/${config}/${name}`,
    cells: [
      { text: name, tag }, config, { share: share ?? 0, text: share === null ? "copies" : percent(share) },
      number(figures?.rate ?? null), duration(figures?.p50 ?? null), duration(figures?.p99 ?? null), number(figures?.errors ?? null), number(figures?.inflight ?? null),
      `${variant.CurrentInstanceCount} of ${variant.DesiredInstanceCount}`, (variant.VariantStatus ?? []).map((each) => statusWords(each, endpoint.Progress)).join("; ") || "–",
    ],
  };
}
