// Talking to the server: requests, and streams of server-sent events, with the headers that the user has given.

import { h, openDialog } from "./dom.js";

const KEPT = "halimede headers";

/** The further headers of each request, such as a bearer token: kept in this tab only. */
export function givenHeaders() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  } catch {
    return {};
  }
}

let headersFor = async () => givenHeaders();

/** Have a function give the headers of each request: `await sign(path, {method, body})`. */
export function signWith(sign) {
  headersFor = sign;
}

/** Send a request; the response, whatever its status. */
export async function ask(path, options = {}) {
  return fetch(path, { cache: "no-store", ...options, headers: { ...await headersFor(path, options), ...options.headers } });
}

/** The JSON that a path answers with; throws an error with the server's words. */
export async function read(path, options = {}) {
  const response = await ask(path, options);
  if (!response.ok) throw await failure(response);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** Post a document; its answer as JSON, null for an empty one. */
export function post(path, document = {}) {
  return read(path, { method: "POST", body: JSON.stringify(document) });
}

/** The error that a response tells of. */
export async function failure(response) {
  const text = await response.text();
  let message = text;
  try {
    const document = JSON.parse(text);
    message = document.error?.message ?? document.error ?? document.Message ?? text;
  } catch { /* not JSON: as it is */ }
  const error = new Error(message || `the server answered with status ${response.status}`);
  error.status = response.status;
  return error;
}

/** The events of a response, one after the other: {event, data}. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    let end;
    while ((end = waiting.indexOf("\n\n")) >= 0) {
      const lines = waiting.slice(0, end).split("\n");
      waiting = waiting.slice(end + 2);
      const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      const event = lines.find((line) => line.startsWith("event:"))?.slice(6).trim() ?? "message";
      if (data) yield { event, data };
    }
  }
}

/**
 * Follow a stream of events for as long as the page wants it, over and over if the server goes away.
 * `path()` gives the path, `onData` gets each document, `onState` hears "live", "lost" or an error that stops it.
 * Returns what ends it.
 */
export function follow(path, onData, onState) {
  let ended = false;
  let abort = new AbortController();
  (async () => {
    for (let wait = 500; !ended; wait = Math.min(wait * 2, 5000)) {
      try {
        const response = await ask(path(), { signal: abort.signal });
        if (!response.ok) throw await failure(response);
        onState("live");
        for await (const { data } of events(response)) {
          wait = 500;
          onData(JSON.parse(data));
        }
        onState("lost");
      } catch (error) {
        if (ended) return;
        onState(error.status ? error : "lost");
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  })();
  return () => {
    ended = true;
    abort.abort();
  };
}

/** Let the user give the headers that the server asks for. */
export function askForAccess(onChange) {
  const given = givenHeaders();
  const other = Object.keys(given).find((name) => name !== "Authorization") ?? "";
  const token = h("input", { id: "access_token", type: "password", autocomplete: "off", value: (given.Authorization ?? "").replace(/^Bearer /, "") });
  const name = h("input", { id: "access_name", autocomplete: "off", value: other });
  const value = h("input", { id: "access_value", type: "password", autocomplete: "off", value: given[other] ?? "" });
  const save = (close) => (event) => {
    event.preventDefault();
    const headers = {};
    if (token.value) headers.Authorization = `Bearer ${token.value}`;
    if (name.value) headers[name.value] = value.value;
    sessionStorage.setItem(KEPT, JSON.stringify(headers));
    close();
    onChange();
  };
  openDialog("Access", (close) => [
    h("p", {}, "Sent with every request of this page, and kept in this browser tab only."),
    h("form", { onsubmit: save(close) },
      h("label", { for: "access_token" }, "Bearer token"), token,
      h("label", { for: "access_name" }, "Header of restricted APIs"), name,
      h("label", { for: "access_value" }, "Its value"), value,
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => close() }, "Cancel"),
        h("button", { class: "primary" }, "Use"))),
  ]);
}
