// Instances and nodes, alarms, and activities of autoscaling.

import { h, keyed, setText, show } from "../dom.js";
import { number } from "../format.js";

const percent = (value) => (value === null || value === undefined ? "–" : `${number(value)} %`);
const when = (text) => (text ? new Date(text).toLocaleTimeString("en-GB") : "");

/** A card with a table: `update(rows)`, each row {key, cells: [text or {text, kind}]}. */
function tableCard(title, columns, empty) {
  const body = h("tbody");
  const none = h("p", { class: "note" }, empty);
  const scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, h("table", {},
    h("caption", { class: "unseen" }, title),
    h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))), body));
  const count = h("span", { class: "faint" });
  const node = h("section", { class: "card flush" }, h("div", { class: "bar_of_title" }, h("h2", {}, title), count), scroll, none);
  const rows = new Map();
  const make = () => {
    const cells = columns.map(([, kind], i) => h(i ? "td" : "th", { class: kind, scope: i ? null : "row" }));
    return { node: h("tr", {}, cells), cells };
  };
  return {
    node,
    update(wanted) {
      show(scroll, wanted.length > 0);
      show(none, !wanted.length);
      setText(count, wanted.length ? String(wanted.length) : "");
      keyed(body, rows, wanted.map((each) => each.key), make);
      for (const { key, cells } of wanted) {
        rows.get(key).cells.forEach((cell, i) => {
          const { text, kind } = typeof cells[i] === "object" ? cells[i] : { text: cells[i], kind: null };
          if (kind === null) return setText(cell, text);
          if (!cell.firstElementChild) cell.replaceChildren(h("span"));
          cell.firstElementChild.className = `pill ${kind}`;
          setText(cell.firstElementChild, text);
        });
      }
    },
  };
}

/** All instances, with the node on which each runs and what it holds. */
export function instancesCard() {
  const card = tableCard("Instances", [["Instance", ""], ["Endpoint", ""], ["Variant", ""], ["State", ""], ["Node", ""], ["Address", ""], ["In flight", "n"], ["Models held", "n"], ["CPU", "n"], ["Memory", "n"], ["Disk", "n"]], "No instance runs.");
  return {
    node: card.node,
    update: (instances) => card.update(instances.map((each) => ({
      key: each.id,
      cells: [each.id, each.endpoint, each.variant, each.takes_requests ? { text: "takes requests", kind: "good" } : { text: "starting or leaving", kind: "busy" },
        each.node || "this machine", each.address, number(each.in_flight), each.models === null ? "–" : number(each.models), percent(each.cpu), percent(each.memory), percent(each.disk)],
    }))),
  };
}

const ALARMS = { OK: "good", ALARM: "bad", INSUFFICIENT_DATA: "" };

/** All alarms, those that are in ALARM first. */
export function alarmsCard() {
  const card = tableCard("Alarms", [["Alarm", ""], ["State", ""], ["Since", ""], ["Reason", ""]], "There are no alarms.");
  return {
    node: card.node,
    update(alarms) {
      const ordered = [...alarms].sort((one, other) => (other.StateValue === "ALARM") - (one.StateValue === "ALARM"));
      card.update(ordered.map((each) => ({ key: each.AlarmName, cells: [each.AlarmName, { text: each.StateValue.toLowerCase().replace("_", " "), kind: ALARMS[each.StateValue] ?? "" }, when(each.StateUpdatedTimestamp), each.StateReason ?? ""] })));
    },
  };
}

const ACTIVITIES = { Successful: "good", Failed: "bad", Unfulfilled: "bad" };

/** What autoscaling did, the newest first. */
export function activitiesCard() {
  const card = tableCard("Autoscaling", [["Activity", ""], ["State", ""], ["At", ""], ["Variant", ""], ["Cause", ""]], "Autoscaling has done nothing yet.");
  return {
    node: card.node,
    update: (activities) => card.update(activities.map((each) => ({ key: each.ActivityId, cells: [each.Description, { text: each.StatusCode, kind: ACTIVITIES[each.StatusCode] ?? "busy" }, when(each.StartTime), each.ResourceId, each.Cause] }))),
  };
}
