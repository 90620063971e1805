// The page of a server.

import { askForAccess, post } from "../calls.js";
import { age } from "../format.js";
import { startPage } from "../shell.js";
import { History } from "./history.js";
import { logsView } from "./logs.js";
import { modelView } from "./model.js";
import { overviewView } from "./overview.js";

const history = new History();

startPage({
  title: "Halimede console",
  tabs: [["#/", "Overview"], ["#/logs", "Logs"]],
  events: "/v2/console/events",
  history,
  viewOf([kind, name, version, section]) {
    if (kind === "logs") return { tab: "#/logs", title: "Logs", make: () => logsView() };
    if (kind === "model") return { tab: "#/", title: name, make: () => modelView(history, name, version, section) };
    return { tab: "#/", title: "Overview", make: () => overviewView(history) };
  },
  about: ({ server, time, started }) => ({
    text: `${server.name} ${server.version}, up ${age(time - started)}`,
    pill: server.ready ? ["Ready", "good"] : ["Not ready", "warn"],
  }),
  askForAccess,
  refusal: (message) => `The server refuses: ${message}. Give it what it asks for under “Access”.`,
});
post("/v2/repository/index").catch(() => {}); // look at the repositories, for models that were never loaded
