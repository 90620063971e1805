// A conversation with a model, over OpenAI's API of the server.

import { ask, events, failure, read } from "../calls.js";
import { h, show } from "../dom.js";
import { number } from "../format.js";
import { attempts } from "./attempt.js";
import { codeTabs } from "./code.js";

const PATH = "/v1/chat/completions";
const SPEAKERS = { user: "You", assistant: "Model" };

/** Whether a model chats: OpenAI's API lists it, and its configuration does not say that it serves something else. */
export async function chats(model, config) {
  const tasks = config.parameters?.["openai.task"]?.string_value;
  if (tasks && !tasks.split(",").some((task) => task.trim() === "chat")) return false;
  const { data } = await read("/v1/models");
  return data.some(({ id }) => id === model.name);
}

/** The form. */
export function chatForm(name) {
  let messages = [];
  const system = h("textarea", { id: "chat_system", rows: "2", oninput: write });
  const temperature = h("input", { id: "chat_temperature", type: "number", min: "0", max: "2", step: "0.1", value: "0.7", class: "short", oninput: write });
  const most = h("input", { id: "chat_most", type: "number", min: "1", value: "256", class: "short", oninput: write });
  const message = h("textarea", { id: "chat_message", rows: "3", required: true, oninput: write, onkeydown: sendOnEnter, "aria-describedby": "chat_keys" });
  const turns = h("ol", { class: "turns" });
  const empty = h("p", { class: "faint" }, "The conversation appears here.");
  const log = h("div", { class: "conversation", role: "log", "aria-label": "Conversation", tabindex: "0" }, empty, turns);
  const attempt = attempts(converse, (error) => error.message);
  const forget = h("button", { type: "button", onclick: begin }, "New conversation");
  const code = codeTabs(["curl", "openai"]);
  const form = h("form", { onsubmit: attempt.run },
    h("label", { for: "chat_message" }, "Message"), message,
    h("p", { id: "chat_keys", class: "faint" }, "Enter sends, Shift and Enter begin a new line."),
    attempt.actions,
    h("div", { class: "line" }, h("label", { for: "chat_temperature" }, "Temperature"), temperature, h("label", { for: "chat_most" }, "Most tokens"), most, forget),
    h("label", { for: "chat_system" }, "System prompt"), system);
  const node = h("div", { class: "try_it chat" }, h("div", {}, log), form, code.node);

  function sendOnEnter(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (log.getAttribute("aria-busy") !== "true") form.requestSubmit();
  }

  function begin() {
    attempt.stop();
    messages = [];
    turns.replaceChildren();
    show(empty, true);
    attempt.say("");
    write();
    message.focus();
  }

  function request(text) {
    const instructions = system.value.trim() ? [{ role: "system", content: system.value }] : [];
    const said = text ? [...messages, { role: "user", content: text }] : messages.slice(0, -1); // without one, the last call
    return { model: name, messages: [...instructions, ...said], temperature: Number(temperature.value), max_tokens: Number(most.value), stream: true };
  }

  function write() {
    const asked = request(message.value.trim() || (messages.length ? "" : "Good morning!"));
    code.update([curl(asked), openai(asked)]);
  }

  function turn(role, text) {
    const words = h("div", { class: "words" }, text);
    const node = h("li", { class: role }, h("p", { class: "who" }, SPEAKERS[role]), words);
    turns.append(node);
    show(empty, false);
    log.scrollTop = log.scrollHeight;
    return { node, words };
  }

  async function converse(signal, took) {
    const text = message.value.trim();
    if (!text) throw new Error("There is no message to send.");
    const asked = request(text);
    const conversation = messages;
    const mine = turn("user", text);
    const answer = turn("assistant", "");
    message.value = "";
    log.setAttribute("aria-busy", "true"); // readers wait until the answer is complete
    let said = "";
    try {
      said = await listen(asked, signal, took, answer.words);
    } finally {
      log.setAttribute("aria-busy", "false");
      said ||= answer.words.textContent;
      if (conversation === messages && said) messages.push({ role: "user", content: text }, { role: "assistant", content: said });
      else if (conversation === messages) {
        mine.node.remove();
        answer.node.remove();
        message.value ||= text;
        show(empty, !messages.length);
      }
      write();
    }
  }

  /** Write the answer as it comes; its text. */
  async function listen(asked, signal, took, words) {
    const response = await ask(PATH, { method: "POST", body: JSON.stringify({ ...asked, stream_options: { include_usage: true } }), signal });
    if (!response.ok) throw await failure(response);
    let first = "";
    let began = 0;
    let pieces = 0;
    let tokens = null;
    for await (const { data } of events(response)) {
      if (data === "[DONE]") break;
      const { choices, usage, error } = JSON.parse(data);
      if (error) throw new Error(error.message);
      tokens = usage?.completion_tokens ?? tokens;
      const piece = choices[0]?.delta.content;
      if (!piece) continue;
      pieces += 1;
      if (!first) [first, began] = [took(), performance.now()];
      const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      words.append(piece);
      if (atEnd) log.scrollTop = log.scrollHeight;
      attempt.say(`${rate(pieces, "pieces", began)}, the first after ${first}`);
    }
    attempt.say(first ? `${tokens === null ? rate(pieces, "pieces", began) : rate(tokens, "tokens", began)}, the first after ${first}` : `An empty answer after ${took()}`);
    return words.textContent;
  }

  write();
  return { node, stop: attempt.stop };
}

/** How many have come since the first, and how many a second. */
function rate(count, what, began) {
  const seconds = (performance.now() - began) / 1000;
  return `${count} ${count === 1 ? what.slice(0, -1) : what}${count > 1 && seconds > 0 ? `, ${number((count - 1) / seconds)} ${what}/s` : ""}`;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const curl = (asked) => `curl -sN ${location.origin}${PATH} -d ${quoted(JSON.stringify(asked))}`;

function openai({ model, messages, temperature, max_tokens: most }) {
  const lines = messages.map((each) => `        ${JSON.stringify(each)},`);
  return ["from openai import OpenAI", "", `client = OpenAI(base_url="${location.origin}/v1", api_key="none")`,
    "stream = client.chat.completions.create(", `    model=${JSON.stringify(model)},`, "    messages=[", ...lines, "    ],",
    `    temperature=${temperature},`, `    max_tokens=${most},`, "    stream=True,", ")",
    "for chunk in stream:", "    if chunk.choices:", '        print(chunk.choices[0].delta.content or "", end="", flush=True)'].join("\n");
}
