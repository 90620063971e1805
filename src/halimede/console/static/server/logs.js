// The server's log.

import { follow } from "../calls.js";
import { logCard } from "../log.js";

export function logsView() {
  const card = logCard("Log", { placeholder: "Text, file or model" });
  const add = (records) => card.add(records.map((each) => ({ ...each, source: each.model || each.place, words: each.place })));
  const stop = follow(() => `/v2/console/logs?after=${card.latest()?.number ?? 0}`, add,
    (state) => card.refuse(typeof state === "string" ? "" : state.message));
  return { node: card.node, close: stop };
}
