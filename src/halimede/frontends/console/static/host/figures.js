// Rates of variants, made of the differences of two snapshots.

const KEPT = 600;
const WINDOW = 5;

/** Takes snapshots; gives the latest and the figures of each variant. */
export class HostHistory {
  constructor() {
    this.snapshots = [];
    this.current = new Map();
    this.points = [];
  }

  get latest() {
    return this.snapshots[this.snapshots.length - 1] ?? null;
  }

  add(snapshot) {
    if (this.latest && this.latest.started !== snapshot.started) this.snapshots = [];
    this.snapshots.push(snapshot);
    if (this.snapshots.length > KEPT) this.snapshots.shift();
    const before = this.snapshots[Math.max(0, this.snapshots.length - 1 - WINDOW)];
    const seconds = snapshot.time - before.time;
    if (seconds <= 0) return null;
    this.current = new Map();
    const all = { rate: 0, errors: 0, inflight: 0, latency: null };
    let answered = 0;
    let spent = 0;
    for (const endpoint of snapshot.endpoints) {
      const old = before.endpoints.find((each) => each.EndpointName === endpoint.EndpointName);
      for (const now of endpoint.Figures) {
        const was = old?.Figures.find((each) => each.variant === now.variant);
        const sum = (name) => (now.sums[name] ?? 0) - (was?.sums[name] ?? 0);
        const count = (name) => (now.counts[name] ?? 0) - (was?.counts[name] ?? 0);
        const measured = count("ModelLatency");
        const figures = {
          rate: sum("Invocations") / seconds,
          errors: (sum("Invocation4XXErrors") + sum("Invocation5XXErrors")) / seconds,
          latency: measured ? sum("ModelLatency") / measured : null,
          inflight: now.in_flight,
        };
        this.current.set(`${endpoint.EndpointName}/${now.variant}`, figures);
        if (now.shadow) continue;
        all.rate += figures.rate;
        all.errors += figures.errors;
        all.inflight += figures.inflight;
        answered += measured;
        spent += sum("ModelLatency");
      }
    }
    all.latency = answered ? spent / answered : null;
    return all;
  }
}
