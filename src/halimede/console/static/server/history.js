// What the last minutes were like: rates and quantiles, made of the differences of snapshots.

import { Columns, KEPT_S } from "../columns.js";

const WINDOW_S = 5; // figures are those of so many seconds

/** The value below which a share of what was counted in buckets lies, interpolated within its bucket; null for none. */
export function quantile(bounds, counts, share) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return null;
  let left = share * total;
  for (let i = 0; i < counts.length; i += 1) {
    if (counts[i] && left <= counts[i]) {
      const low = i ? bounds[i - 1] : 0;
      const high = i < bounds.length ? bounds[i] : bounds[bounds.length - 1];
      return low + (high - low) * (left / counts[i]);
    }
    left -= counts[i];
  }
  return bounds[bounds.length - 1];
}

const minus = (now, before) => now.map((value, i) => value - (before?.[i] ?? 0));
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** The key of a version, which stays the same from snapshot to snapshot. */
export const keyOf = (model) => `${model.namespace}/${model.name}/${model.version}`;

/** Requests that failed, of counts by reason; those that their clients cancelled are no failures. */
const failed = (reasons) => sum(Object.values(reasons)) - reasons.CANCELED;

/** Requests of a model that failed. */
export const failures = (model) => failed(model.counters.failures);

/** Requests of a model that their clients cancelled. */
export const cancelled = (model) => model.counters.failures.CANCELED;

/** How many of something clients sent themselves: all but what other requests led to. */
export const ofClients = {
  success: (model) => model.counters.success - model.nested.success,
  failures: (model) => failures(model) - failed(model.nested.failures),
  cancelled: (model) => cancelled(model) - model.nested.failures.CANCELED,
};

/** Figures of a version between two snapshots, `seconds` apart. */
export function figures(bounds, now, before, seconds) {
  const was = before && before.counters && before.counters.success <= now.counters.success ? before : null;
  const delta = (name) => now.counters[name] - (was?.counters[name] ?? 0);
  const answered = delta("success");
  const executions = delta("executions");
  const latencies = minus(now.request_us, was?.request_us);
  const grown = (count) => count(now) - (was ? count(was) : 0);
  const nested = minus(now.nested.request_us, was?.nested.request_us);
  const mean = (name) => (answered ? delta(name) / answered / 1000 : null);
  return {
    rate: answered / seconds,
    failed: grown(failures) / seconds,
    cancelled: grown(cancelled) / seconds,
    p50: quantile(bounds.duration_us, latencies, 0.5),
    p99: quantile(bounds.duration_us, latencies, 0.99),
    latencies,
    executions: executions / seconds,
    batch: executions ? delta("inferences") / executions : null,
    queue_us: mean("queue_ns"),
    input_us: mean("compute_input_ns"),
    infer_us: mean("compute_infer_ns"),
    output_us: mean("compute_output_ns"),
    hits: delta("cache_hits"),
    misses: delta("cache_misses"),
    pending: now.pending,
    inflight: now.inflight,
    ofClients: {
      rate: grown(ofClients.success) / seconds,
      failed: grown(ofClients.failures) / seconds,
      cancelled: grown(ofClients.cancelled) / seconds,
      inflight: now.inflight - now.nested.inflight,
      latencies: minus(latencies, nested),
    },
  };
}

const SERIES = ["rate", "failed", "cancelled", "p50", "p99", "pending", "inflight", "batch", "queue_us", "input_us", "infer_us", "output_us"];

/** Takes snapshots; gives the latest, and the columns of each version and of all of them together. */
export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.snapshots = [];
    this.columns = new Map();
    this.current = new Map();
    this.all = new Columns(SERIES);
    this.total = null;
    this.answers = [];
    this.cpu = null;
  }

  get latest() {
    return this.snapshots[this.snapshots.length - 1] ?? null;
  }

  /** The oldest snapshot that is kept, with which "in the last minutes" begins. */
  get first() {
    return this.snapshots[0] ?? null;
  }

  add(snapshot) {
    if (this.latest && this.latest.started !== snapshot.started) this.clear();
    this.snapshots.push(snapshot);
    if (this.snapshots.length > KEPT_S) this.snapshots.shift();
    const before = this.snapshots[Math.max(0, this.snapshots.length - 1 - WINDOW_S)];
    const seconds = snapshot.time - before.time;
    if (seconds <= 0) return;
    const old = new Map(before.models.map((model) => [keyOf(model), model]));
    const bounds = snapshot.bounds;
    const points = [];
    this.current = new Map();
    for (const model of snapshot.models) {
      if (!model.counters) continue;
      const key = keyOf(model);
      const was = old.get(key);
      if (!was?.counters) continue; // it was loaded meanwhile: wait for the next snapshots
      const point = figures(bounds, model, was, seconds);
      this.current.set(key, point);
      points.push(point);
      if (!this.columns.has(key)) this.columns.set(key, new Columns(SERIES));
      this.columns.get(key).add(snapshot.time, point);
    }
    const known = new Set(snapshot.models.map(keyOf));
    for (const key of this.columns.keys()) if (!known.has(key)) this.columns.delete(key);
    this.total = together(bounds, points);
    this.all.add(snapshot.time, this.total);
    this.answers = answers(snapshot, before, seconds);
    this.cpu = (snapshot.process.cpu_s - before.process.cpu_s) / seconds;
  }

  /** How much counts have grown since the page was opened, or for ten minutes: of a version now and then. */
  grown(key) {
    const now = this.latest?.models.find((model) => keyOf(model) === key);
    const then = this.first?.models.find((model) => keyOf(model) === key);
    if (!now?.counters) return null;
    const was = then?.counters && then.counters.executions <= now.counters.executions ? then : null;
    return {
      batch_size: minus(now.batch_size, was?.batch_size),
      closings: Object.fromEntries(
        Object.entries(now.closings).map(([name, count]) => [name, count - (was?.closings[name] ?? 0)])),
      failures: Object.fromEntries(
        Object.entries(now.counters.failures).map(([name, count]) => [name, count - (was?.counters.failures[name] ?? 0)])),
      tokens: now.counters.tokens - (was?.counters.tokens ?? 0),
      padding: now.counters.padding - (was?.counters.padding ?? 0),
      hits: now.counters.cache_hits - (was?.counters.cache_hits ?? 0),
      misses: now.counters.cache_misses - (was?.counters.cache_misses ?? 0),
    };
  }
}

/** Figures of all versions together: each request of a client once, and all that wait in queues. */
function together(bounds, points) {
  const latencies = new Array(bounds.duration_us.length + 1).fill(0);
  for (const point of points) point.ofClients.latencies.forEach((count, i) => { latencies[i] += count; });
  const add = (name) => sum(points.map((point) => point.ofClients[name]));
  return {
    rate: add("rate"),
    failed: add("failed"),
    cancelled: add("cancelled"),
    pending: sum(points.map((point) => point.pending)),
    inflight: add("inflight"),
    p50: quantile(bounds.duration_us, latencies, 0.5),
    p99: quantile(bounds.duration_us, latencies, 0.99),
  };
}

/** Answers by protocol and status: how many there were, and how many a second. */
function answers(now, before, seconds) {
  const old = new Map(before.traffic.map((each) => [each.protocol, each.statuses]));
  return now.traffic.flatMap(({ protocol, statuses }) => Object.entries(statuses).map(([status, count]) => (
    { protocol, status, count, rate: (count - (old.get(protocol)?.[status] ?? 0)) / seconds })));
}
