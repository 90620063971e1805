// One endpoint: its variants with their traffic, a deployment as it proceeds, and what is captured.

import { h, keyed, setText, show } from "../dom.js";
import { age, duration, number, percent } from "../format.js";

const KINDS = { InService: "good", Failed: "bad", RollingBack: "warn", UpdateRollbackFailed: "bad" };
const COLUMNS = [["Variant", ""], ["Traffic", ""], ["Requests/s", "n"], ["Model latency", "n"], ["Errors/s", "n"], ["In flight", "n"], ["Instances", "n"], ["Now", ""]];

/** The card of an endpoint: `update(endpoint, history)`. */
export function endpointCard(name) {
  const pill = h("span", { class: "pill" });
  const about = h("span", { class: "faint" });
  const reason = h("p", { class: "note bad" });
  const deployment = h("p", { class: "note deployment" });
  const captured = h("p", { class: "faint captured" });
  const body = h("tbody");
  const rows = new Map();
  const node = h("section", { class: "card flush" },
    h("div", { class: "bar_of_title" }, h("h2", {}, name), pill, about),
    reason, deployment,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Variants of ${name}` }, h("table", {},
      h("caption", { class: "unseen" }, `Variants of ${name}`),
      h("thead", {}, h("tr", {}, COLUMNS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))), body)),
    captured);

  return {
    node,
    update(endpoint, history) {
      setText(pill, endpoint.EndpointStatus);
      pill.className = `pill ${KINDS[endpoint.EndpointStatus] ?? "busy"}`;
      setText(about, [endpoint.EndpointConfigName, endpoint.AsyncInferenceConfig && "asynchronous"].filter(Boolean).join(" · "));
      setText(reason, endpoint.FailureReason ?? "");
      show(reason, Boolean(endpoint.FailureReason));
      const pending = endpoint.PendingDeploymentSummary;
      const steps = pending ? pending.ProductionVariants.flatMap((each) => (each.VariantStatus ?? []).map((status) => `${status.Status}${status.StatusMessage ? `: ${status.StatusMessage}` : ""}`)) : [];
      const since = pending?.StartTime ? ` for ${age(history.latest.time - new Date(pending.StartTime).getTime() / 1000)}` : "";
      setText(deployment, pending ? `Deploying ${pending.EndpointConfigName}${since}. ${[...new Set(steps)].join("; ")}` : "");
      show(deployment, Boolean(pending));
      const variants = variantsOf(endpoint);
      keyed(body, rows, [...variants.keys()], variantRow);
      for (const [key, variant] of variants) rows.get(key).update(variant, history.current.get(`${endpoint.EndpointName}/${variant.VariantName}`));
      const records = endpoint.Figures.reduce((sum, each) => sum + (each.sums.DataCaptureRecords ?? 0), 0);
      const capture = endpoint.DataCaptureConfig;
      setText(captured, capture ? `Data capture ${capture.CaptureStatus?.toLowerCase() ?? ""}: ${number(records)} invocations captured, to ${capture.DestinationS3Uri}` : "");
      show(captured, Boolean(capture));
    },
  };
}

/** Key → a variant, with its share of the traffic, what serves it and what is to come. */
function variantsOf(endpoint) {
  const found = new Map();
  const add = (list, kind, config) => {
    const fleet = endpoint.Shares[config] ?? (kind === "new" ? 0 : 1);
    const whole = (list ?? []).reduce((sum, each) => sum + each.CurrentWeight, 0);
    for (const variant of list ?? []) found.set(`${kind}/${variant.VariantName}`, { ...variant, kind, share: kind === "shadow" ? null : whole ? (fleet * variant.CurrentWeight) / whole : 0 });
  };
  const pending = endpoint.PendingDeploymentSummary;
  add(endpoint.ProductionVariants, "", endpoint.EndpointConfigName);
  add(endpoint.ShadowProductionVariants, "shadow", endpoint.EndpointConfigName);
  add(pending?.ProductionVariants, "new", pending?.EndpointConfigName);
  return found;
}

function variantRow() {
  const title = h("span");
  const kind = h("span", { class: "pill" });
  const fill = h("span", { class: "fill" });
  const share = h("span", { class: "value" });
  const cells = Array.from({ length: 5 }, () => h("td", { class: "n" }));
  const status = h("td");
  const node = h("tr", {}, h("th", { scope: "row" }, title, " ", kind),
    h("td", {}, h("span", { class: "share" }, h("span", { class: "track", "aria-hidden": "true" }, fill), share)), cells, status);
  return {
    node,
    update(variant, figures) {
      setText(title, variant.VariantName);
      setText(kind, variant.kind);
      show(kind, Boolean(variant.kind));
      fill.style.width = `${(variant.share ?? 0) * 100}%`;
      setText(share, variant.share === null ? "copies" : percent(variant.share));
      const serving = variant.kind === "new" ? undefined : figures;
      const texts = [number(serving?.rate ?? null), duration(serving?.latency ?? null), number(serving?.errors ?? null), number(serving?.inflight ?? null), `${variant.CurrentInstanceCount} of ${variant.DesiredInstanceCount}`];
      cells.forEach((cell, i) => setText(cell, texts[i]));
      setText(status, (variant.VariantStatus ?? []).map((each) => `${each.Status}${each.StatusMessage ? `: ${each.StatusMessage}` : ""}`).join("; ") || "–");
    },
  };
}
