// Instances, and the nodes that they run on.

import { h } from "../dom.js";
import { number } from "../format.js";
import { tableCard } from "../table.js";

const nodeName = (node) => node || "this machine";
const percent = (value) => (value === null || value === undefined ? "–" : `${number(value)} %`);

export function instancesView(history) {
  const nodes = nodesCard();
  const instances = instancesCard();
  const node = h("div", {}, h("h1", { class: "unseen" }, "Instances"), nodes.node, instances.node);
  return {
    node,
    update() {
      nodes.update(history.latest.instances);
      instances.update(history.latest.instances);
    },
  };
}

/** Instances, with the node on which each runs and what it holds; with `endpoint: false` those of one endpoint. */
export function instancesCard({ endpoint = true } = {}) {
  const columns = [["Instance", ""], ["Endpoint", ""], ["Variant", ""], ["Configuration", ""], ["State", ""], ["Node", ""], ["Address", ""], ["In flight", "n"], ["Models held", "n"], ["CPU", "n"], ["Memory", "n"], ["Disk", "n"]];
  const card = tableCard("Instances", endpoint ? columns : columns.filter(([name]) => name !== "Endpoint"), "No instance runs.");
  return {
    node: card.node,
    update: (instances) => card.update(instances.map((each) => ({
      key: each.id,
      cells: [each.id, ...(endpoint ? [{ text: each.endpoint, href: `#/endpoint/${each.endpoint}` }] : []), each.variant, each.config || "–",
        each.takes_requests ? { text: "takes requests", kind: "good" } : { text: "starting or leaving", kind: "busy" },
        nodeName(each.node), each.address, number(each.in_flight), each.models === null ? "–" : number(each.models), percent(each.cpu), percent(each.memory), percent(each.disk)],
    }))),
  };
}

/** The nodes, with what runs on each. */
function nodesCard() {
  const card = tableCard("Nodes", [["Node", ""], ["Instances", "n"], ["Take requests", "n"], ["Endpoints", ""], ["In flight", "n"], ["Models held", "n"], ["CPU of instances", "n"], ["Disk", "n"]], "No instance runs on any node.");
  return {
    node: card.node,
    update(instances) {
      const names = [...new Set(instances.map((each) => each.node))].sort();
      card.update(names.map((name) => {
        const here = instances.filter((each) => each.node === name);
        const add = (member) => here.reduce((sum, each) => sum + (each[member] ?? 0), 0);
        const measured = here.filter((each) => each.cpu !== null);
        const endpoints = [...new Set(here.map((each) => each.endpoint))];
        return {
          key: name,
          cells: [nodeName(name), number(here.length), number(here.filter((each) => each.takes_requests).length),
            endpoints.length > 4 ? `${endpoints.slice(0, 4).join(", ")} and ${endpoints.length - 4} more` : endpoints.join(", "), number(add("in_flight")),
            here.some((each) => each.models !== null) ? number(add("models")) : "–",
            measured.length ? percent(add("cpu")) : "–", measured.length ? percent(Math.max(...measured.map((each) => each.disk))) : "–"],
        };
      }));
    },
  };
}
