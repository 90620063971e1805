// Answers, drawn: bars of classes, pictures, texts, tables, and streams as they come.

import { drawBars } from "../charts.js";
import { h } from "../dom.js";
import { draw, pictureOf } from "./pictures.js";

const MOST_CELLS = 256;
const MOST_CLASSES = 10;

const textOf = (value) => (value instanceof Uint8Array ? new TextDecoder().decode(value) : String(value));

/** One number as it is shown. */
function shown(value) {
  if (typeof value !== "number" || Number.isInteger(value)) return textOf(value);
  return Math.abs(value) >= 1e-4 && Math.abs(value) < 1e6 ? String(Number(value.toPrecision(6))) : String(Number(value.toPrecision(3)));
}

/** The outputs of a response. */
export function outputsDrawn(outputs) {
  return outputs.map((output) => h("section", { class: "output" },
    h("h4", {}, output.name, " ", h("code", {}, `${output.datatype} [${output.shape.join(", ")}]`)), body(output)));
}

function body(output) {
  const { datatype, shape, values } = output;
  if (!values.length) return h("p", { class: "faint" }, "It is empty.");
  if (datatype === "BYTES") {
    const texts = values.map(textOf);
    const classes = texts.map((text) => /^(-?[\d.e+-]+):(\d+)(?::(.*))?$/s.exec(text));
    if (classes.every(Boolean)) return classBars(classes.map(([, score, index, label]) => [label ?? `class ${index}`, Number(score)]));
    return texts.length === 1 ? h("pre", { class: "text", tabindex: "0" }, texts[0]) : table(output.name, texts, shape);
  }
  const picture = datatype !== "BOOL" && pictureOf(shape);
  if (picture && (picture.channels === 3 || Math.min(picture.height, picture.width) >= 16)) return draw(values, picture, datatype, `Picture of ${output.name}`);
  const last = shape[shape.length - 1];
  if (/^(FP|BF)/.test(datatype) && last > 2 && values.length === last) {
    const rows = values.map((value, i) => [`${i}`, value]).sort((a, b) => b[1] - a[1]);
    if (rows[rows.length - 1][1] >= 0 && rows[0][1] <= 1) return h("div", {}, classBars(rows.slice(0, MOST_CLASSES)), details("All values", table(output.name, values.map(shown), shape)));
  }
  return table(output.name, values.map(shown), shape);
}

function classBars(rows) {
  const list = h("dl", { class: "bars blue" });
  drawBars(list, h("p"), rows, (value) => shown(value));
  return list;
}

const details = (title, content) => h("details", {}, h("summary", {}, title), content);

function table(name, texts, shape) {
  const columns = Math.min(shape.length ? shape[shape.length - 1] || 1 : 1, 32);
  const rows = [];
  for (let at = 0; at < Math.min(texts.length, MOST_CELLS); at += columns) {
    rows.push(h("tr", {}, texts.length > columns && h("th", { scope: "row" }, String(at)), texts.slice(at, at + columns).map((text) => h("td", { class: "n" }, text))));
  }
  const rest = texts.length - MOST_CELLS;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Values of ${name}` },
    h("table", { class: "values" }, h("caption", { class: "unseen" }, `Values of ${name}`), h("tbody", {}, rows)),
    rest > 0 && h("p", { class: "faint" }, `and ${rest.toLocaleString("en")} more`));
}

/** A stream of responses: `add(document)` shows one more. Texts are joined, other outputs become rows. */
export function streamDrawn(outputs) {
  const text = outputs.find((output) => output.datatype === "BYTES");
  const written = h("pre", { class: "text stream", "aria-live": "polite", tabindex: "0" });
  const body_ = h("tbody");
  const others = outputs.filter((output) => output !== text);
  const rows = h("table", { class: "values" }, h("caption", { class: "unseen" }, "Responses in the order in which they came"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "#"), others.map((output) => h("th", { scope: "col" }, output.name)))), body_);
  let count = 0;
  const scroll = h("div", { class: "scroll stream_rows", tabindex: "0", role: "region", "aria-label": "Responses" }, rows);
  return {
    node: h("div", { class: "output" }, text && written, others.length > 0 && scroll),
    add(document) {
      count += 1;
      if (text && document[text.name] !== undefined) written.append([document[text.name]].flat().join(""));
      if (others.length) {
        body_.append(h("tr", {}, h("th", { scope: "row" }, String(count)), others.map((output) => h("td", { class: "n" }, JSON.stringify(document[output.name]) ?? ""))));
        scroll.scrollTop = scroll.scrollHeight;
      }
      return count;
    },
  };
}
