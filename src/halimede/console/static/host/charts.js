// What charts show of a host and of an endpoint alike.

import { timeChart } from "../charts.js";
import { duration, number } from "../format.js";

/** The charts of a host's or an endpoint's invocations: each draws the columns of a HostHistory. */
export const invocationCharts = () => [
  timeChart("Requests per second", [{ name: "requests", series: "rate", colour: "blue", fill: true }, { name: "errors", series: "errors", colour: "red" }], number),
  timeChart("Model latency", [{ name: "p50", series: "p50", colour: "teal" }, { name: "p99", series: "p99", colour: "orange" }], duration, { log: true }),
  timeChart("Requests in flight", [{ name: "in flight", series: "inflight", colour: "violet", fill: true }], number),
];
