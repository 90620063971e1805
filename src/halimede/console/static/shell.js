// What the pages of servers and hosts share: tabs, one view at a time, and the stream that feeds it.

import { follow } from "./calls.js";
import { h, setAttribute, setText, show } from "./dom.js";

/**
 * Start a page.
 * `title` ends its titles; `tabs` are [href, name]; `events` is the path of its snapshots, and `history.add` takes them;
 * `viewOf(parts)` says for the parts of an address such as #/model/resnet what to show: {tab, title, make}, where
 * `make()` gives {node, update, close}; `about(snapshot)` is {text, pill: [text, kind]} for the head of the page;
 * `askForAccess(onChange)` lets the user say who they are; `refusal(message)` says what to do if that is needed.
 */
export function startPage({ title, tabs, events, history, viewOf, about, askForAccess, refusal }) {
  const main = document.getElementById("main");
  const links = tabs.map(([href, name]) => h("a", { href }, name));
  const text = h("span", { class: "name" });
  const pill = h("span", { class: "pill", hidden: true });
  const connection = h("span", { class: "connection" }, "Connecting");
  const access = h("button", { type: "button", class: "quiet", onclick: () => askForAccess(listen) }, "Access");
  const refused = h("p", { class: "refused note bad", hidden: true });
  const place = h("div", {});
  let view = null;
  let stop = null;
  document.getElementById("tabs").append(...links.map((link) => h("li", {}, link)));
  document.getElementById("server").append(text, pill, connection, access);
  main.replaceChildren(refused, place);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address says which view is shown
    main.focus();
  });

  function route() {
    const parts = (location.hash || "#/").slice(2).split("/").map(decodeURIComponent);
    const chosen = viewOf(parts);
    view?.close?.();
    view = chosen.make();
    place.replaceChildren(view.node);
    document.title = `${chosen.title} – ${title}`;
    for (const link of links) setAttribute(link, "aria-current", link.getAttribute("href") === chosen.tab ? "page" : null);
    if (history.latest) view.update?.();
  }

  function taken(snapshot) {
    history.add(snapshot);
    const { text: said, pill: state } = about(snapshot);
    setText(text, said);
    show(pill, Boolean(state));
    if (state) {
      setText(pill, state[0]);
      pill.className = `pill ${state[1]}`;
    }
    view.update?.();
  }

  function stateChanged(state) {
    const isRefused = typeof state !== "string";
    setText(connection, isRefused ? "No access" : state === "live" ? "Live" : "Connection lost, trying again");
    connection.className = `connection ${isRefused ? "bad" : state}`;
    show(refused, isRefused);
    if (isRefused) setText(refused, refusal(state.message));
  }

  function listen() {
    stop?.();
    stop = follow(() => events, taken, stateChanged);
  }

  addEventListener("hashchange", () => {
    route();
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  });
  route();
  listen();
}
