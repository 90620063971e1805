// What is said of a model, and what can be done with it, in each view alike.

import { confirm, h, notify, setText, show } from "../dom.js";
import { post } from "../calls.js";

const KINDS = { READY: "good", LOADING: "busy", UNLOADING: "busy", UNAVAILABLE: "bad" };

/** Whether a model is not there because that was asked for. */
export const unloaded = (model) => model.state === "UNAVAILABLE" && (!model.reason || model.reason === "unloaded");

/** The state of a version in words: {text, kind}. */
export function stateOf(model) {
  if (!model.state) return { text: "Not loaded", kind: "" };
  if (unloaded(model)) return { text: "Unloaded", kind: "" };
  if (model.state === "UNAVAILABLE") return { text: "Failed", kind: "bad" };
  return { text: model.state[0] + model.state.slice(1).toLowerCase(), kind: KINDS[model.state] ?? "" };
}

/** A pill with the state; `update(model)`. */
export function statePill() {
  const node = h("span", { class: "pill" });
  return {
    node,
    update(model) {
      const { text, kind } = stateOf(model);
      setText(node, text);
      node.className = `pill ${kind}`;
    },
  };
}

/** Where a version is shown. */
export const linkTo = (model) => `#/model/${encodeURIComponent(model.name)}/${encodeURIComponent(model.version)}`;

/** Buttons that load, reload and unload; `update(model, allowed)`. */
export function controls() {
  let model = null;
  let busy = false;
  const button = (text, action) => h("button", { type: "button", onclick: action }, text);
  const load = button("Load", () => change("load", "Loading"));
  const reload = button("Reload", () => change("load", "Reloading"));
  const unload = button("Unload", async () => {
    const sure = await confirm(`Unload ${model.name}?`, "Requests that are under way are answered first; new ones are refused.", "Unload");
    if (sure) await change("unload", "Unloading");
  });
  const node = h("div", { class: "actions" }, load, reload, unload);

  async function change(call, doing) {
    busy = true;
    refresh();
    notify(`${doing} ${model.name}…`);
    try {
      await post(`/v2/repository/models/${encodeURIComponent(model.name)}/${call}`);
      notify(`${model.name} is ${call === "load" ? "loaded" : "unloaded"}.`, "good");
    } catch (error) {
      notify(error.message, "error");
    }
    busy = false;
    refresh();
  }

  function refresh() {
    for (const each of [load, reload, unload]) each.disabled = busy;
    for (const [each, name] of [[load, "Load"], [reload, "Reload"], [unload, "Unload"]]) each.setAttribute("aria-label", `${name} ${model.name}`);
  }

  return {
    node,
    update(newModel, allowed) {
      model = newModel;
      const there = model.state === "READY";
      show(node, allowed);
      show(load, !there);
      show(reload, there);
      show(unload, there);
      refresh();
    },
  };
}
