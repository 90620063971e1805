// The page: which view is shown, and what feeds it.

import { h, setAttribute, setText, show } from "./dom.js";
import { age } from "./format.js";
import { History } from "./history.js";
import { askForAccess, follow, post } from "./server.js";
import { logsView } from "./views/logs.js";
import { modelView } from "./views/model.js";
import { overviewView } from "./views/overview.js";

const TABS = [["#/", "Overview"], ["#/logs", "Logs"]];

const history = new History();
const main = document.getElementById("main");
let view = null;
let stop = null;

const tabs = TABS.map(([href, name]) => h("a", { href }, name));
document.getElementById("tabs").append(...tabs.map((tab) => h("li", {}, tab)));

const serverName = h("span", { class: "name" });
const readiness = h("span", { class: "pill" });
const connection = h("span", { class: "connection" }, "Connecting");
const access = h("button", { type: "button", class: "quiet", onclick: () => askForAccess(listen) }, "Access");
document.getElementById("server").append(serverName, readiness, connection, access);

function viewOf(hash) {
  const [, kind, name, version, section] = hash.slice(1).split("/").map(decodeURIComponent);
  if (kind === "logs") return { tab: "#/logs", title: "Logs", make: () => logsView() };
  if (kind === "model") return { tab: "#/", title: name, make: () => modelView(history, name, version, section) };
  return { tab: "#/", title: "Overview", make: () => overviewView(history) };
}

function route() {
  const chosen = viewOf(location.hash || "#/");
  view?.close?.();
  view = chosen.make();
  main.replaceChildren(view.node);
  document.title = `${chosen.title} – Halimede console`;
  for (const tab of tabs) setAttribute(tab, "aria-current", tab.getAttribute("href") === chosen.tab ? "page" : null);
  if (history.latest) view.update?.();
}

function said(snapshot) {
  history.add(snapshot);
  const { server } = snapshot;
  setText(serverName, `${server.name} ${server.version}, up ${age(snapshot.time - snapshot.started)}`);
  setText(readiness, server.ready ? "Ready" : "Not ready");
  readiness.className = `pill ${server.ready ? "good" : "warn"}`;
  view.update?.();
}

function stateChanged(state) {
  const refused = typeof state !== "string";
  setText(connection, refused ? "No access" : state === "live" ? "Live" : "Connection lost, trying again");
  connection.className = `connection ${refused ? "bad" : state}`;
  const note = main.querySelector(".refused") ?? main.insertAdjacentElement("afterbegin", h("p", { class: "refused note bad" }));
  show(note, refused);
  if (refused) {
    setText(note, `The server refuses: ${state.message}. Give it what it asks for under “Access”.`);
  }
}

function listen() {
  stop?.();
  stop = follow(() => "/v2/console/events", said, stateChanged);
}

addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
route();
listen();
post("/v2/repository/index").catch(() => {}); // look at the repositories, for models that were never loaded
