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

/** Requests that failed. */
export const failures = (model) => sum(Object.values(model.counters.failures));

/** Figures of a version between two snapshots, `seconds` apart. */
export function figures(bounds, now, before, seconds) {
  const was = before && before.counters && before.counters.success <= now.counters.success ? before : null;
  const delta = (name) => now.counters[name] - (was?.counters[name] ?? 0);
  const answered = delta("success");
  const executions = delta("executions");
  const latencies = minus(now.request_us, was?.request_us);
  const mean = (name) => (answered ? delta(name) / answered / 1000 : null);
  return {
    rate: answered / seconds,
    failed: (failures(now) - (was ? failures(was) : 0)) / seconds,
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
  };
}

const SERIES = ["rate", "failed", "p50", "p99", "pending", "inflight", "batch", "queue_us", "input_us", "infer_us", "output_us"];

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
      if (model.scheduler !== "ensemble" || snapshot.models.length === 1) points.push(point);
      if (!this.columns.has(key)) this.columns.set(key, new Columns(SERIES));
      this.columns.get(key).add(snapshot.time, point);
    }
    const known = new Set(snapshot.models.map(keyOf));
    for (const key of this.columns.keys()) if (!known.has(key)) this.columns.delete(key);
    this.total = together(bounds, points);
    this.all.add(snapshot.time, this.total);
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

function together(bounds, points) {
  const latencies = new Array(bounds.duration_us.length + 1).fill(0);
  for (const point of points) point.latencies.forEach((count, i) => { latencies[i] += count; });
  const add = (name) => sum(points.map((point) => point[name]));
  return {
    rate: add("rate"),
    failed: add("failed"),
    pending: add("pending"),
    inflight: add("inflight"),
    p50: quantile(bounds.duration_us, latencies, 0.5),
    p99: quantile(bounds.duration_us, latencies, 0.99),
  };
}
