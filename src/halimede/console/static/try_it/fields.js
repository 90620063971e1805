// One input of the form: values, text, a picture or a file.

import { h, notify, show } from "../dom.js";
import { DATATYPES, elements, isNumeric, parseValues } from "./datatypes.js";
import { pictureOf, SCALES, valuesOf } from "./pictures.js";

/** A field for an input of the model's metadata; `read()` gives {name, datatype, shape, values or bytes}, or null. */
export function field(input, { optional, batched, onChange }) {
  const id = `input_${input.name.replace(/[^A-Za-z0-9_-]/g, "_")}`;
  const { datatype } = input;
  let file = null;
  const kinds = kindsOf(datatype, startShape(input.shape));
  const kind = h("select", { id: `${id}_kind`, "aria-label": `Kind of ${input.name}`, onchange: change }, kinds.map((each) => h("option", { value: each }, each)));
  const shape = h("input", { id: `${id}_shape`, class: "shape", value: startShape(input.shape).join(", "), oninput: change });
  const used = h("input", { type: "checkbox", id: `${id}_used`, checked: !optional, onchange: change });
  const text = h("textarea", { id, rows: "3", spellcheck: "false", oninput: onChange });
  const scale = h("select", { "aria-label": `Scale of ${input.name}`, onchange: change }, Object.keys(SCALES).map((each) => h("option", { value: each }, each)));
  scale.value = datatype === "UINT8" ? "0 to 255" : "0 to 1";
  const picker = h("input", { type: "file", id: `${id}_file`, class: "unseen", onchange: () => take(picker.files[0]) });
  const preview = h("img", { alt: "", hidden: true });
  const chosen = h("span", {}, "Drop a file here, or choose one");
  const drop = h("label", { class: "drop", for: `${id}_file` }, preview, chosen);
  const fills = h("div", { class: "fills" }, [["Zeros", () => 0], ["Count up", (i) => i], ["Random", random]].map(([name, make]) =>
    h("button", { type: "button", class: "quiet", "aria-label": `${name} for ${input.name}`, onclick: () => fillWith(make) }, name)));
  const node = h("fieldset", { class: "field" },
    h("legend", {}, input.name, " ", h("code", {}, datatype)),
    h("div", { class: "line" },
      optional && h("label", { for: `${id}_used`, class: "check" }, used, "Send"),
      h("label", { for: `${id}_shape` }, "Shape"), shape, kind, scale, fills),
    h("label", { for: id, class: "unseen" }, `Values of ${input.name}`), text, picker, drop);

  for (const [event, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    node.addEventListener(event, (happened) => {
      happened.preventDefault();
      drop.classList.toggle("over", over);
      if (event === "drop" && happened.dataTransfer.files[0]) {
        const dropped = happened.dataTransfer.files[0];
        if (kind.value === "Values" || kind.value === "Text") kind.value = kinds.includes("Picture") && dropped.type.startsWith("image/") ? "Picture" : "File";
        take(dropped);
      }
    });
  }

  function random() {
    if (datatype.startsWith("FP") || datatype === "BF16") return Number(Math.random().toFixed(4));
    return datatype === "BOOL" ? Math.round(Math.random()) : Math.floor(Math.random() * 16);
  }

  function fillWith(make) {
    const count = elements(readShape());
    if (count > 100_000) return notify("That is too much to show: choose a file.", "error");
    text.value = Array.from({ length: count }, (_, i) => make(i)).join(" ");
    onChange();
  }

  function take(newFile) {
    file = newFile ?? null;
    chosen.textContent = file ? `${file.name}, ${file.size.toLocaleString("en")} bytes` : "Drop a file here, or choose one";
    preview.hidden = !file?.type.startsWith("image/");
    if (!preview.hidden) {
      URL.revokeObjectURL(preview.src);
      preview.src = URL.createObjectURL(file);
    }
    change();
  }

  function readShape() {
    const dims = shape.value.split(/[\s,]+/).filter(Boolean).map(Number);
    if (dims.some((size) => !Number.isInteger(size) || size < 0)) throw new Error(`${input.name}: the shape must be whole numbers, such as ${startShape(input.shape).join(", ")}`);
    return dims;
  }

  function change() {
    const written = kind.value === "Values" || kind.value === "Text";
    show(text, written);
    show(drop, !written);
    show(picker, !written);
    show(fills, kind.value === "Values");
    show(scale, kind.value === "Picture");
    onChange();
  }

  async function read() {
    if (!used.checked) return null;
    let dims = readShape();
    const tensor = { name: input.name, datatype, shape: dims };
    if (kind.value === "Text") {
      const lines = elements(dims) === 1 ? [text.value] : text.value.split("\n");
      if (lines.length !== elements(dims)) throw new Error(`${input.name}: ${lines.length} lines, but the shape has ${elements(dims)} elements`);
      return { ...tensor, values: lines };
    }
    if (kind.value === "Values") {
      const values = parseValues(text.value, datatype);
      const free = input.shape.map((size, i) => (size === -1 ? i : -1)).filter((i) => i >= 0);
      if (values.length !== elements(dims) && free.length) dims = stretched(dims, free[free.length - 1], values.length);
      if (values.length !== elements(dims)) throw new Error(`${input.name}: ${values.length} values, but the shape [${dims.join(", ")}] has ${elements(dims)}`);
      return { ...tensor, shape: dims, values };
    }
    if (!file) throw new Error(`${input.name}: choose a file first`);
    if (kind.value === "Picture") {
      const values = await valuesOf(file, pictureOf(dims), scale.value);
      return { ...tensor, values: isWhole(datatype) ? values.map(Math.round) : values, file: file.name };
    }
    const content = new Uint8Array(await file.arrayBuffer());
    if (datatype === "BYTES") return { ...tensor, values: [content], file: file.name };
    const bytes = withoutNpyHead(content);
    const needed = elements(dims) * DATATYPES[datatype].size;
    if (bytes.length !== needed) throw new Error(`${input.name}: the file has ${bytes.length} bytes of values, but the shape needs ${needed}`);
    return { ...tensor, bytes, file: file.name };
  }

  if (datatype === "BYTES") text.value = "Hello";
  else if (elements(startShape(input.shape)) <= SMALL_PICTURE) fillWith(elements(startShape(input.shape)) > 1 && batched !== undefined ? (i) => (datatype === "BOOL" ? i % 2 : i % 100) : () => 1);
  change();
  return { node, read };
}

const SMALL_PICTURE = 1024; // elements that are still written by hand
const isWhole = (datatype) => /INT/.test(datatype);
const startShape = (shape) => shape.map((size) => (size === -1 ? 1 : size));

function kindsOf(datatype, shape) {
  if (datatype === "BYTES") return ["Text", "File"];
  if (!isNumeric(datatype) || !pictureOf(shape)) return ["Values", "File"];
  return elements(shape) > SMALL_PICTURE ? ["Picture", "Values", "File"] : ["Values", "Picture", "File"];
}

function stretched(dims, place, count) {
  const others = dims.reduce((product, size, i) => (i === place ? product : product * size), 1);
  return count % others ? dims : dims.map((size, i) => (i === place ? count / others : size));
}

/** The values of a file of NumPy, whose head says what they are; other files are values throughout. */
function withoutNpyHead(content) {
  if (content[0] !== 0x93 || new TextDecoder().decode(content.subarray(1, 6)) !== "NUMPY") return content;
  const view = new DataView(content.buffer);
  return content.subarray(content[6] === 1 ? 10 + view.getUint16(8, true) : 12 + view.getUint32(8, true));
}
