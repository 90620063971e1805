// Requests on their way: tensors to bytes, responses to tensors.

import { ask, events, failure } from "../calls.js";
import { decode, elements, encode } from "./datatypes.js";

/** Where a model answers. */
export const pathOf = (model, call) => `/v2/models/${encodeURIComponent(model.name)}${model.version ? `/versions/${model.version}` : ""}/${call}`;

/** Run one request; its outputs as [{name, datatype, shape, values}], with values of BYTES as bytes. */
export async function infer(model, request, signal) {
  const pieces = [];
  const inputs = request.inputs.map((tensor) => {
    const bytes = tensor.bytes ?? encode(tensor.values, tensor.datatype);
    pieces.push(bytes);
    return { name: tensor.name, datatype: tensor.datatype, shape: tensor.shape, parameters: { binary_data_size: bytes.length } };
  });
  const document = { inputs, parameters: { ...request.parameters, binary_data_output: true } };
  if (request.outputs) document.outputs = request.outputs;
  const head = new TextEncoder().encode(JSON.stringify(document));
  const response = await ask(pathOf(model, "infer"), {
    method: "POST",
    body: new Blob([head, ...pieces]),
    headers: { "Inference-Header-Content-Length": String(head.length), "Content-Type": "application/octet-stream" },
    signal,
  });
  if (!response.ok) throw await failure(response);
  return readOutputs(response.headers.get("inference-header-content-length"), new Uint8Array(await response.arrayBuffer()));
}

/** The outputs of a response whose first bytes are JSON, so many as `headLength` says (null for all). */
export function readOutputs(headLength, body) {
  const length = headLength === null ? body.length : Number(headLength);
  const document = JSON.parse(new TextDecoder().decode(body.subarray(0, length)));
  let at = length;
  return document.outputs.map(({ name, datatype, shape, data, parameters }) => {
    const size = parameters?.binary_data_size;
    if (size === undefined) return { name, datatype, shape, values: data };
    at += size;
    return { name, datatype, shape, values: decode(body.subarray(at - size, at), datatype) };
  });
}

/** The JSON of `generate_stream` for a request: scalars and flat lists. */
export function generateDocument(request) {
  const plain = (tensor) => {
    const values = (tensor.values ?? decode(tensor.bytes, tensor.datatype)).map((value) => (typeof value === "bigint" ? Number(value) : value instanceof Uint8Array ? new TextDecoder().decode(value) : value));
    return elements(tensor.shape) === 1 ? values[0] : values;
  };
  return { ...request.parameters, ...Object.fromEntries(request.inputs.map((tensor) => [tensor.name, plain(tensor)])) };
}

/** Run a request of a decoupled model: each response, as it comes. */
export async function* stream(model, request, signal) {
  const response = await ask(pathOf(model, "generate_stream"), { method: "POST", body: JSON.stringify(generateDocument(request)), signal });
  if (!response.ok && !response.headers.get("content-type")?.startsWith("text/event-stream")) throw await failure(response);
  for await (const { data } of events(response)) {
    const document = JSON.parse(data);
    if (document.error) throw new Error(document.error);
    yield document;
  }
}
