// Answers of endpoints, drawn by what they are: tensors, JSON, text, pictures, or bytes to save.

import { h } from "../dom.js";
import { outputsDrawn } from "../try_it/answer.js";
import { readOutputs } from "../try_it/sending.js";

const BINARY = /^application\/vnd\.sagemaker-triton\.binary\+json;\s*json-header-size=(\d+)/;
const MOST_SHOWN = 200_000;

/** The elements that show an answer of a content type. */
export function answerDrawn(type, bytes) {
  const name = `answer.${extension(type)}`;
  const save = h("p", {}, h("a", { download: name, href: URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" })) }, `Save ${name}`),
    h("span", { class: "faint" }, ` ${type || "no content type"}, ${bytes.length.toLocaleString("en")} bytes`));
  return [...body(type, bytes), save];
}

function body(type, bytes) {
  if (!bytes.length) return [h("p", { class: "faint" }, "It is empty.")];
  if (type.startsWith("image/")) return [h("img", { alt: "The answer", src: URL.createObjectURL(new Blob([bytes], { type })) })];
  const binary = BINARY.exec(type);
  if (binary) return outputsDrawn(readOutputs(binary[1], bytes));
  const text = textOf(bytes);
  if (text === null) return [h("p", { class: "faint" }, "It is no text.")];
  const document = parsed(text);
  if (document === undefined) return [h("pre", { class: "text long", tabindex: "0" }, shortened(text))];
  const outputs = tensors(document);
  const pretty = h("pre", { class: "text long", tabindex: "0" }, shortened(JSON.stringify(document, null, 2)));
  return outputs ? [...outputsDrawn(outputs), h("details", {}, h("summary", {}, "As JSON"), pretty)] : [pretty];
}

/** The tensors of KServe's JSON; null if it is something else. */
function tensors(document) {
  const outputs = document?.outputs;
  if (!Array.isArray(outputs) || !outputs.every((each) => each?.name && each.datatype && Array.isArray(each.shape) && Array.isArray(each.data))) return null;
  return outputs.map(({ name, datatype, shape, data }) => ({ name, datatype, shape, values: data.flat(Infinity) }));
}

function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

function parsed(text) {
  try {
    const document = JSON.parse(text);
    return typeof document === "object" && document !== null ? document : undefined;
  } catch {
    return undefined;
  }
}

const shortened = (text) => (text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n… and ${(text.length - MOST_SHOWN).toLocaleString("en")} characters more` : text);
const extension = (type) => ({ "application/json": "json", "text/csv": "csv", "text/plain": "txt", "image/png": "png", "image/jpeg": "jpg" })[type.split(";")[0]] ?? "bin";
