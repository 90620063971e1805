// A form that sends real requests to an endpoint.

import { h, setText, show } from "../dom.js";
import { attempts } from "../try_it/attempt.js";
import { codeTabs } from "../try_it/code.js";
import { answerDrawn } from "./answers.js";
import { pieces, send } from "./invoking.js";
import { SNIPPETS } from "./snippets.js";
import { takeSuggestion } from "./suggestion.js";

const TYPES = ["application/json", "text/csv", "text/plain", "application/jsonlines", "application/octet-stream", "application/x-npy", "image/jpeg", "image/png"];
const PRINTABLE = /^[\x20-\x7e]*$/;

export function tryEndpoint(history, name) {
  let endpoint = null;
  const suggested = takeSuggestion(name);
  const kind = h("select", { id: "body_kind", onchange: changed }, ["Text", "File"].map((each) => h("option", { value: each }, each)));
  const text = h("textarea", { id: "body", rows: "8", spellcheck: "false", value: suggested?.body ?? "{}", oninput: changed });
  const picker = h("input", { type: "file", id: "body_file", class: "unseen", onchange: () => take(picker.files[0]) });
  const chosen = h("span", {}, "Drop a file here, or choose one");
  const drop = h("label", { class: "drop", for: "body_file" }, chosen);
  const warning = h("p", { class: "warning", role: "status" });
  const type = h("input", { id: "content_type", list: "content_types", value: suggested?.type || "application/json", oninput: changed });
  const accept = h("input", { id: "accept", list: "content_types", placeholder: "anything", oninput: changed });
  const variant = h("select", { id: "variant", onchange: changed }, h("option", { value: "" }, "by weight"));
  const model = h("input", { id: "model", placeholder: "model.tar.gz", value: suggested?.model ?? "", oninput: changed });
  const session = h("input", { id: "session", placeholder: "none, an id, or NEW_SESSION", oninput: changed });
  const streamed = h("input", { type: "checkbox", id: "streamed", onchange: changed });
  const row = (label, control) => h("div", { class: "line pair_of" }, h("label", { for: control.id }, label), control);
  const [variantRow, modelRow, sessionRow] = [row("Variant", variant), row("Target model", model), row("Session", session)];
  const streamRow = h("label", { class: "check" }, streamed, "Show the answer as it comes");
  const queued = h("p", { class: "note" }, "The endpoint is asynchronous: the request is put into its queue, and the answer says where the result will be.");
  const attempt = attempts(ask, (error) => (error.status ? `Failed with ${error.status}` : "Not sent"));
  const code = codeTabs(SNIPPETS.map((each) => each.name));
  const form = h("form", { onsubmit: attempt.run },
    queued,
    h("fieldset", { class: "field" }, h("legend", {}, "Body"),
      h("div", { class: "line" }, h("label", { for: "body_kind" }, "From"), kind),
      h("label", { for: "body", class: "unseen" }, "Text of the body"), text, picker, drop, warning),
    h("datalist", { id: "content_types" }, TYPES.map((each) => h("option", { value: each }))),
    row("Content type", type), row("Accept", accept), variantRow, modelRow, sessionRow, streamRow,
    attempt.actions);
  const node = h("section", { class: "card try" }, h("h2", {}, "Try it"), h("div", { class: "try_it" },
    form, attempt.answer, code.node));

  for (const [event, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    form.addEventListener(event, (happened) => {
      happened.preventDefault();
      drop.classList.toggle("over", over);
      if (event === "drop" && happened.dataTransfer.files[0]) {
        kind.value = "File";
        take(happened.dataTransfer.files[0]);
      }
    });
  }

  let file = null;
  function take(newFile) {
    file = newFile ?? null;
    setText(chosen, file ? `${file.name}, ${file.size.toLocaleString("en")} bytes` : "Drop a file here, or choose one");
    if (file?.type) type.value = file.type;
    changed();
  }

  /** What the form asks for; throws an error that says what is wrong with it. */
  function request() {
    const isFile = kind.value === "File";
    if (isFile && !file) throw new Error("Body: choose a file first");
    if (!type.value.trim()) throw new Error("Content type: say what the body is, such as application/json");
    const values = { type, accept, model, session };
    const given = Object.fromEntries(Object.entries(values).map(([key, input]) => [key, input.value.trim()]));
    for (const [key, value] of Object.entries(given)) {
      const label = form.querySelector(`label[for="${values[key].id}"]`).textContent;
      if (!PRINTABLE.test(value)) throw new Error(`${label}: “${value}” has characters that a header cannot have; it takes printable ASCII`);
    }
    if (endpoint?.MultiModel && !given.model) throw new Error("Target model: say which model is meant, such as model.tar.gz; the endpoint has many");
    return {
      endpoint: name, ...given, variant: variant.value,
      kind: endpoint?.AsyncInferenceConfig ? "queued" : streamed.checked && !streamRow.hidden ? "stream" : "whole",
      file: isFile ? file : null, body: isFile ? null : text.value,
    };
  }

  function changed() {
    show(text, kind.value === "Text");
    show(drop, kind.value === "File");
    show(picker, kind.value === "File");
    setText(warning, kind.value === "Text" && /^application\/(.*\+)?json\b/.test(type.value) ? problemOf(text.value) : "");
    try {
      const asked = request();
      code.update(SNIPPETS.map((each) => each.code(asked, history.latest?.host.region ?? "us-east-1")));
    } catch (error) {
      code.explain(error.message);
    }
  }

  async function ask(signal, took) {
    const asked = request();
    const response = await send(asked, signal);
    if (asked.kind === "queued") {
      attempt.say(`Accepted in ${took()}`);
      attempt.draw(await placesDrawn(response));
    } else if (asked.kind === "stream") {
      const written = h("pre", { class: "text stream", "aria-live": "polite", tabindex: "0" });
      attempt.draw(written);
      const decoder = new TextDecoder();
      let count = 0;
      let first = "";
      for await (const piece of pieces(response)) {
        written.append(decoder.decode(piece, { stream: true }));
        count += 1;
        first ||= took();
        attempt.say(`${count} parts, the first after ${first}`);
      }
      attempt.say(count ? `${count} parts in ${took()}, the first after ${first}` : `Nothing came, in ${took()}`);
    } else {
      const bytes = new Uint8Array(await response.arrayBuffer());
      attempt.say(`${response.status} in ${took()}, from variant ${response.headers.get("x-amzn-invoked-production-variant") ?? "?"}`);
      attempt.draw(...answerDrawn(response.headers.get("content-type") ?? "", bytes));
    }
  }

  let isFirst = true;
  show(queued, false);
  return {
    node,
    update(newEndpoint) {
      const names = newEndpoint.ProductionVariants?.map((each) => each.VariantName) ?? [];
      const known = [...variant.options].slice(1).map((each) => each.value);
      const isSame = String(names) === String(known) && !isFirst && endpoint.MultiModel === newEndpoint.MultiModel;
      endpoint = newEndpoint;
      if (isSame) return;
      isFirst = false;
      const before = variant.value;
      variant.replaceChildren(variant.options[0], ...names.map((each) => h("option", { value: each }, each)));
      variant.value = names.includes(before) ? before : "";
      const isQueued = Boolean(endpoint.AsyncInferenceConfig);
      show(queued, isQueued);
      show(variantRow, !isQueued && names.length > 1);
      show(modelRow, Boolean(endpoint.MultiModel));
      show(sessionRow, !isQueued);
      show(streamRow, !isQueued && !endpoint.MultiModel);
      changed();
    },
    close: attempt.stop,
  };
}

/** What is wrong with a body that is to be JSON; "" for nothing. */
function problemOf(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return `The body is no JSON (${error.message}). It is sent as it is.`;
  }
}

/** Where the result of a request that was put into a queue will be. */
async function placesDrawn(response) {
  const places = [["Result", "x-amzn-sagemaker-outputlocation"], ["Or an error", "x-amzn-sagemaker-failurelocation"]];
  const rows = places.map(([title, header]) => [title, response.headers.get(header)]);
  const { InferenceId: id } = await response.json();
  return h("dl", { class: "places" }, [["Inference ID", id], ...rows].filter(([, value]) => value).map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value))));
}
