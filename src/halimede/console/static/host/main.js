// The page of a host.

import { signWith } from "../calls.js";
import { age } from "../format.js";
import { startPage } from "../shell.js";
import { endpointView } from "./endpoint.js";
import { HostHistory } from "./history.js";
import { instancesView } from "./instances.js";
import { overviewView } from "./overview.js";
import { askForKeys, signed } from "./sign.js";

signWith(signed);

const history = new HostHistory();

startPage({
  title: "Halimede host",
  tabs: [["#/", "Overview"], ["#/instances", "Instances"]],
  events: "/console/events",
  history,
  viewOf([kind, name, section]) {
    if (kind === "instances") return { tab: "#/instances", title: "Instances", make: () => instancesView(history) };
    if (kind === "endpoint") return { tab: "#/", title: name, make: () => endpointView(history, name, section) };
    return { tab: "#/", title: "Overview", make: () => overviewView(history) };
  },
  about: ({ host, time, started }) => ({ text: `${host.version}, account ${host.account}, ${host.region}, up ${age(time - started)}` }),
  askForAccess: askForKeys,
  refusal: (message) => `The host refuses: ${message} Give it a key under “Access”.`,
});
