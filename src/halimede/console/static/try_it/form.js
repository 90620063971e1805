// A form made from a model's metadata, which sends real requests.

import { h, show } from "../dom.js";
import { read } from "../calls.js";
import { outputsDrawn, streamDrawn } from "./answer.js";
import { attempts } from "./attempt.js";
import { chatForm, chats } from "./chat.js";
import { codeTabs } from "./code.js";
import { encode } from "./datatypes.js";
import { field } from "./fields.js";
import { infer, pathOf, stream } from "./sending.js";
import { filesOf, SNIPPETS } from "./snippets.js";

/** The form for a model; it is made once the model is there. */
export function tryIt(name, version) {
  const content = h("div", {});
  const node = h("section", { class: "card try" }, h("h2", {}, "Try it"), content);
  let state = "";
  let forms = [];
  const stop = () => forms.forEach((form) => form.stop());
  show(node, false);

  async function make(model, openai) {
    try {
      const metadata = await read(pathOf(model, "").slice(0, -1));
      const config = await read(pathOf(model, "config")).catch(() => ({}));
      const tensors = modelForm({ ...model, ...config, name: model.name, version: model.version, decoupled: model.decoupled, scheduler: model.scheduler, inputs: metadata.inputs, outputs: metadata.outputs }, config);
      const chat = openai && await chats(model, config).catch(() => false) ? chatForm(model.name) : null;
      forms = chat ? [chat, tensors] : [tensors];
      content.replaceChildren(...(chat ? choice(["Conversation", "Tensors"], forms) : [tensors.node]));
    } catch (error) {
      content.replaceChildren(h("p", { class: "note bad" }, `The model's metadata cannot be read: ${error.message}`));
    }
  }

  return {
    node,
    update(model, openai) {
      if (model.state === state) return;
      state = model.state;
      show(node, state === "READY");
      stop();
      if (state === "READY") make(model, openai);
    },
    close: stop,
  };
}

/** One of several forms, the first to begin with, and buttons that choose. */
function choice(names, forms) {
  const choose = (chosen) => forms.forEach((form, i) => {
    show(form.node, i === chosen);
    buttons[i].setAttribute("aria-pressed", String(i === chosen));
  });
  const buttons = names.map((name, i) => h("button", { type: "button", class: "quiet", onclick: () => choose(i) }, name));
  choose(0);
  return [h("div", { class: "line", role: "group", "aria-label": "Form" }, buttons), ...forms.map((form) => form.node)];
}

function modelForm(model, config) {
  let timer = 0;
  const settings = new Map((config.input ?? []).map((input) => [input.name, input]));
  const labelled = (config.output ?? []).filter((output) => output.label_filename).map((output) => output.name);
  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(showCode, 150);
  };
  const fields = model.inputs.map((input) => field(input, { optional: settings.get(input.name)?.optional ?? false, batched: config.max_batch_size > 0, onChange: changed }));
  const options = optionsOf(model, labelled, changed);
  const attempt = attempts(ask, () => "Failed");
  const code = codeTabs(SNIPPETS.map(({ name }) => name));
  const node = h("div", { class: "try_it" },
    h("form", { onsubmit: attempt.run }, fields.map((each) => each.node), options.node, attempt.actions),
    attempt.answer,
    code.node);

  async function request() {
    const inputs = (await Promise.all(fields.map((each) => each.read()))).filter(Boolean);
    return { inputs, ...options.read() };
  }

  function write(asked) {
    code.update(SNIPPETS.map(({ applies, code: text }) => (applies(model) ? text(model, asked) : null)), filesOf(model, asked, encode));
  }

  async function showCode() {
    try {
      write(await request());
    } catch (error) {
      code.explain(error.message);
    }
  }

  async function ask(signal, took) {
    const asked = await request();
    write(asked);
    if (!model.decoupled) {
      const outputs = await infer(model, asked, signal);
      attempt.say(`Answered in ${took()}`);
      attempt.draw(...outputsDrawn(outputs));
      return;
    }
    const drawn = streamDrawn(model.outputs);
    attempt.draw(drawn.node);
    let first = "";
    let count = 0;
    for await (const document of stream(model, asked, signal)) {
      count = drawn.add(document);
      first ||= took();
      attempt.say(`${count} responses, the first after ${first}`);
    }
    attempt.say(count ? `${count} responses in ${took()}, the first after ${first}` : `No response, after ${took()}`);
  }

  showCode();
  return { node, stop: attempt.stop };
}

/** What belongs to a request beside its inputs: classes, and its place in a sequence. */
function optionsOf(model, labelled, onChange) {
  const classes = h("input", { type: "number", id: "classes", min: "0", value: "5", class: "short", oninput: onChange });
  const sequence = h("input", { id: "sequence", value: "1", class: "short", oninput: onChange });
  const start = h("input", { type: "checkbox", id: "sequence_start", checked: true, onchange: onChange });
  const end = h("input", { type: "checkbox", id: "sequence_end", onchange: onChange });
  const parts = [];
  if (labelled.length) parts.push(h("label", { for: "classes" }, "Best classes to show"), classes);
  if (model.scheduler === "sequence") {
    parts.push(h("label", { for: "sequence" }, "Sequence"), sequence, h("label", { class: "check" }, start, "starts"), h("label", { class: "check" }, end, "ends"));
  }
  return {
    node: h("div", { class: "line options" }, parts),
    read() {
      const parameters = {};
      if (model.scheduler === "sequence") {
        parameters.sequence_id = /^\d+$/.test(sequence.value) ? Number(sequence.value) : sequence.value;
        parameters.sequence_start = start.checked;
        parameters.sequence_end = end.checked;
      }
      const count = Number(classes.value);
      const outputs = labelled.length && count > 0
        ? model.outputs.map(({ name }) => (labelled.includes(name) ? { name, parameters: { classification: count } } : { name }))
        : null;
      return { parameters, outputs };
    },
  };
}
