// What the instances of an endpoint print, as it comes.

import { follow } from "../calls.js";
import { logCard } from "../log.js";

const GLOG = /^([IWEF])\d{4} \d\d:\d\d/;
const OF_LETTERS = { I: "INFO", W: "WARNING", E: "ERROR", F: "CRITICAL" };

/** How bad a line is, by what it says; lines that go on with a traceback are as bad as its beginning. */
function levelOf(message, before) {
  if (/^[\s^~]|^[-=]+$/.test(message) && before) return before;
  const glog = GLOG.exec(message);
  if (glog) return OF_LETTERS[glog[1]];
  if (/\b(CRITICAL|FATAL)\b/.test(message)) return "CRITICAL";
  if (/\bERROR\b|^Traceback|^[\w.]*(Error|Exception)\b/.test(message)) return "ERROR";
  return /\bWARN(ING)?\b/.test(message) ? "WARNING" : "INFO";
}

export function endpointLogs(_, name) {
  const card = logCard("Logs of instances", { heading: "h2", sources: "Instance" });
  const query = new URLSearchParams({ endpoint: name });
  const levels = new Map(); // of the last line of each instance
  const recordOf = ({ time, stream, message }) => {
    const level = levelOf(message, levels.get(stream));
    levels.set(stream, level);
    return { time, message, level, source: stream };
  };
  const stop = follow(() => `/console/logs?${query}`, (records) => card.add(records.map(recordOf)),
    (state) => {
      if (state === "live") card.clear(); // the last lines come again
      card.refuse(typeof state === "string" ? "" : state.message);
    });
  return { node: card.node, close: stop };
}
