// Alarms, how their states changed, and activities of autoscaling.

import { tableCard } from "../table.js";

const ALARMS = { OK: "good", ALARM: "bad", INSUFFICIENT_DATA: "" };
const ACTIVITIES = { Successful: "good", Failed: "bad", Unfulfilled: "bad" };
const when = (text) => (text ? new Date(text).toLocaleTimeString("en-GB") : "");
const words = (state) => state.toLowerCase().replace("_", " ");

/** The state of an alarm as a cell of a table: {text, kind}. */
export const alarmState = (alarm) => ({ text: words(alarm.StateValue), kind: ALARMS[alarm.StateValue] ?? "" });

/** Alarms, those that are in ALARM first. */
export function alarmsCard() {
  const card = tableCard("Alarms", [["Alarm", ""], ["State", ""], ["Since", ""], ["Reason", ""]], "There are no alarms.");
  return {
    node: card.node,
    update(alarms) {
      const ordered = [...alarms].sort((one, other) => (other.StateValue === "ALARM") - (one.StateValue === "ALARM"));
      card.update(ordered.map((each) => ({ key: each.AlarmName, cells: [each.AlarmName, alarmState(each), when(each.StateUpdatedTimestamp), each.StateReason ?? ""] })));
    },
  };
}

/** How the states of alarms changed, the latest first. */
export function changesCard() {
  const card = tableCard("Changes of alarms", [["Alarm", ""], ["At", ""], ["Change", ""]], "No alarm has changed its state.");
  return {
    node: card.node,
    update: (changes) => card.update(changes.map((each) => ({ key: `${each.AlarmName} ${each.Timestamp} ${each.HistorySummary}`, cells: [each.AlarmName, when(each.Timestamp), each.HistorySummary] }))),
  };
}

/** What autoscaling did, the newest first. */
export function activitiesCard() {
  const card = tableCard("Autoscaling", [["Activity", ""], ["State", ""], ["At", ""], ["Variant", ""], ["Cause", ""]], "Autoscaling has done nothing yet.");
  return {
    node: card.node,
    update: (activities) => card.update(activities.map((each) => ({ key: each.ActivityId, cells: [each.Description, { text: each.StatusCode, kind: ACTIVITIES[each.StatusCode] ?? "busy" }, when(each.StartTime), each.ResourceId, each.Cause] }))),
  };
}
