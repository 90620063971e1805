// What a form that sends requests shows of them, one at a time: its buttons, what became of the request, and the answer.

import { h, setText, show } from "../dom.js";
import { duration } from "../format.js";

/**
 * The parts of such a form.
 * @param work sends the request, and says and draws what comes: called with a signal that stops it, and with `took`,
 *   which tells how long it has taken by now.
 * @param failed what is said of an error.
 */
export function attempts(work, failed) {
  let abort = null;
  const stopNow = () => abort?.abort();
  const send = h("button", { class: "primary" }, "Send");
  const stop = h("button", { type: "button", hidden: true, onclick: stopNow }, "Stop");
  const outcome = h("p", { class: "outcome", role: "status" });
  const answer = h("div", { class: "answer" }, h("p", { class: "faint" }, "The answer appears here."));
  return {
    actions: h("div", { class: "actions" }, send, stop, outcome),
    answer: h("div", { class: "result" }, h("h3", {}, "Answer"), answer),
    say: (text) => setText(outcome, text),
    draw: (...nodes) => answer.replaceChildren(...nodes),
    stop: stopNow,
    async run(event) {
      event.preventDefault();
      abort = new AbortController();
      send.disabled = true;
      show(stop, true);
      outcome.className = "outcome";
      setText(outcome, "Waiting…");
      const began = performance.now();
      const took = () => duration((performance.now() - began) * 1000);
      try {
        await work(abort.signal, took);
        outcome.classList.add("good");
      } catch (error) {
        const stopped = error.name === "AbortError";
        setText(outcome, stopped ? `Stopped after ${took()}` : failed(error));
        outcome.classList.toggle("bad", !stopped);
        if (!stopped) answer.replaceChildren(h("p", { class: "note bad" }, error.message));
      }
      send.disabled = false;
      show(stop, false);
    },
  };
}
