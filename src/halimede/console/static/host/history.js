// Rates of endpoints, variants and fleets, made of the differences of two snapshots.

import { Columns, KEPT_S } from "../columns.js";

const WINDOW_S = 5; // figures are those of so many seconds
const SERIES = ["rate", "errors", "p50", "p99", "inflight"];

/** Takes snapshots; gives the latest, and the figures of the host, its endpoints and their variants. */
export class HostHistory {
  constructor() {
    this.clear();
  }

  clear() {
    this.snapshots = [];
    this.variants = new Map();
    this.fleets = new Map();
    this.endpoints = new Map();
    this.total = null;
    this.all = new Columns(SERIES);
    this.columns = new Map();
  }

  get latest() {
    return this.snapshots[this.snapshots.length - 1] ?? null;
  }

  /** The endpoint of that name in the latest snapshot; undefined if there is none. */
  endpoint(name) {
    return this.latest?.endpoints.find((each) => each.EndpointName === name);
  }

  add(snapshot) {
    if (this.latest && this.latest.started !== snapshot.started) this.clear();
    this.snapshots.push(snapshot);
    if (this.snapshots.length > KEPT_S) this.snapshots.shift();
    const recent = this.snapshots.slice(-1 - WINDOW_S);
    const before = recent[0];
    const seconds = snapshot.time - before.time;
    if (seconds <= 0) return;
    this.variants = new Map();
    this.fleets = new Map();
    this.endpoints = new Map();
    for (const endpoint of snapshot.endpoints) {
      const name = endpoint.EndpointName;
      const old = before.endpoints.find((each) => each.EndpointName === name);
      const serving = [];
      for (const now of endpoint.Figures) {
        const was = old?.Figures.find((each) => each.variant === now.variant);
        const grown = growth(now, was, seconds);
        this.variants.set(`${name}/${now.variant}`, rates([grown]));
        if (!now.shadow) serving.push(grown);
      }
      for (const now of endpoint.Fleets) {
        const [was, since] = earliest(recent, name, now);
        if (since < snapshot.time) this.fleets.set(`${name}/${now.config}/${now.variant}`, rates([growth(now, was, snapshot.time - since)]));
      }
      this.endpoints.set(name, { ...rates(serving), serving });
      if (!this.columns.has(name)) this.columns.set(name, new Columns(SERIES));
      this.columns.get(name).add(snapshot.time, this.endpoints.get(name));
    }
    for (const name of this.columns.keys()) if (!this.endpoints.has(name)) this.columns.delete(name);
    this.total = rates([...this.endpoints.values()].flatMap((each) => each.serving));
    this.all.add(snapshot.time, this.total);
  }
}

/** What the earliest of some snapshots says of a fleet's variant, and when it was taken: a fleet may be new. */
function earliest(snapshots, name, { config, variant }) {
  for (const { endpoints, time } of snapshots) {
    const fleets = endpoints.find((each) => each.EndpointName === name)?.Fleets ?? [];
    const found = fleets.find((each) => each.config === config && each.variant === variant);
    if (found) return [found, time];
  }
  return [null, Infinity];
}

/** What was counted of a variant between two snapshots. */
function growth(now, was, seconds) {
  const sum = (name) => (now.sums[name] ?? 0) - (was?.sums[name] ?? 0);
  const before = new Map(was?.latencies ?? []);
  return {
    rate: sum("Invocations") / seconds,
    errors: (sum("Invocation4XXErrors") + sum("Invocation5XXErrors")) / seconds,
    latencies: now.latencies.map(([value, count]) => [value, count - (before.get(value) ?? 0)]).filter(([, count]) => count > 0),
    inflight: now.in_flight,
  };
}

/** The figures of several variants together. */
function rates(parts) {
  const add = (name) => parts.reduce((total, part) => total + part[name], 0);
  const latencies = parts.flatMap((part) => part.latencies).sort(([one], [other]) => one - other);
  return { rate: add("rate"), errors: add("errors"), inflight: add("inflight"), p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) };
}

/** The value of [value, count] in ascending order below which a share of all lies; null for none. */
function quantile(values, share) {
  let left = share * values.reduce((total, [, count]) => total + count, 0);
  for (const [value, count] of values) {
    left -= count;
    if (left <= 0) return value;
  }
  return null;
}
