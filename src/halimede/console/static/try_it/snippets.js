// The same call as code to copy. A further client is a further entry of SNIPPETS.

import { elements } from "./datatypes.js";
import { generateDocument, pathOf } from "./sending.js";

const MOST_VALUES = 128;
const NUMPY = {
  BOOL: "bool", UINT8: "uint8", INT8: "int8", UINT16: "uint16", INT16: "int16", UINT32: "uint32", INT32: "int32",
  UINT64: "uint64", INT64: "int64", FP16: "float16", FP32: "float32", FP64: "float64",
};

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const inline = (tensor) => tensor.values && !(tensor.values[0] instanceof Uint8Array) && tensor.values.length <= MOST_VALUES;
const fileOf = (tensor) => `${tensor.name}.bin`;

/** A value as JSON and Python have it. */
const written = (value) => (typeof value === "bigint" ? String(value) : typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(7))) : JSON.stringify(value));

/** The request as JSON; values that are too many, or no text, stand for themselves as "…". */
function inferJson(request) {
  const inputs = request.inputs.map((tensor) => {
    const data = inline(tensor) ? `[${tensor.values.map(written).join(", ")}]` : '["…"]';
    return `{"name": ${JSON.stringify(tensor.name)}, "datatype": "${tensor.datatype}", "shape": [${tensor.shape.join(", ")}],\n   "data": ${data}}`;
  });
  const outputs = request.outputs ? `,\n "outputs": ${JSON.stringify(request.outputs)}` : "";
  const parameters = Object.keys(request.parameters).length ? `,\n "parameters": ${JSON.stringify(request.parameters)}` : "";
  return `{"inputs": [\n  ${inputs.join(",\n  ")}]${outputs}${parameters}}`;
}

function curl(model, request) {
  const url = `${location.origin}${pathOf(model, model.decoupled ? "generate_stream" : "infer")}`;
  if (model.decoupled) return `curl -sN ${url} -d ${quoted(JSON.stringify(generateDocument(request)))}`;
  if (request.inputs.every(inline)) return `curl -s ${url} -d ${quoted(inferJson(request))}`;
  if (request.inputs.length === 1 && request.inputs[0].bytes) return `curl -s ${url} -H 'Inference-Header-Content-Length: 0' --data-binary @${fileOf(request.inputs[0])} --output -`;
  return `# request.json: the request, with the values of ${request.inputs.filter((tensor) => !inline(tensor)).map((tensor) => tensor.name).join(", ")}\ncurl -s ${url} -d @request.json`;
}

function arrayOf(tensor) {
  const shape = `(${tensor.shape.join(", ")}${tensor.shape.length === 1 ? "," : ""})`;
  if (tensor.datatype === "BYTES") {
    if (inline(tensor)) return `np.array([${tensor.values.map(written).join(", ")}], object).reshape${shape}`;
    return `np.array([open(${JSON.stringify(tensor.file ?? fileOf(tensor))}, "rb").read()], object).reshape${shape}`;
  }
  const kind = `np.${NUMPY[tensor.datatype] ?? "float32"}`;
  if (inline(tensor)) return `np.array([${tensor.values.map((value) => (value === true ? "True" : value === false ? "False" : written(value))).join(", ")}], ${kind}).reshape${shape}`;
  return `np.fromfile(${JSON.stringify(tensor.bytes ? tensor.file : fileOf(tensor))}, ${kind}).reshape${shape}`;
}

function tritonclient(model, request) {
  const version = model.version ? `, model_version="${model.version}"` : "";
  const lines = ["import numpy as np", `import tritonclient.${model.decoupled ? "grpc" : "http"} as triton`, ""];
  if (model.decoupled) lines.push("# 8001 is the usual port of gRPC", `client = triton.InferenceServerClient("${location.hostname}:8001")`);
  else lines.push(`client = triton.InferenceServerClient("${location.host}")`);
  lines.push("inputs = []");
  for (const tensor of request.inputs) {
    lines.push(`array = ${arrayOf(tensor)}`);
    lines.push(`inputs.append(triton.InferInput(${JSON.stringify(tensor.name)}, array.shape, "${tensor.datatype}"))`, "inputs[-1].set_data_from_numpy(array)");
  }
  if (model.decoupled) {
    const output = JSON.stringify(model.outputs[0]?.name ?? "OUTPUT0");
    lines.push("", "client.start_stream(lambda result, error: print(error or result.as_numpy(" + output + ")))",
      `client.async_stream_infer(${JSON.stringify(model.name)}, inputs${version})`, "client.stop_stream()  # returns when all responses have come");
    return lines.join("\n");
  }
  const chosen = (request.outputs ?? []).map((output) => {
    const classes = output.parameters?.classification;
    return `triton.InferRequestedOutput(${JSON.stringify(output.name)}${classes ? `, class_count=${classes}` : ""})`;
  });
  const sequence = Object.entries(request.parameters).map(([name, value]) => `, ${name}=${value === true ? "True" : value === false ? "False" : JSON.stringify(value)}`).join("");
  lines.push("", `result = client.infer(${JSON.stringify(model.name)}, inputs${version}${chosen.length ? `, outputs=[${chosen.join(", ")}]` : ""}${sequence})`);
  for (const output of model.outputs) lines.push(`print(result.as_numpy(${JSON.stringify(output.name)}))`);
  return lines.join("\n");
}

function boto3(model, request) {
  const lines = ["import boto3"];
  const body = request.inputs.every(inline) ? `"""${inferJson(request).replaceAll("\\", "\\\\")}"""` : 'open("request.json").read()';
  lines.push("", "# an endpoint of `halimede host`, or of SageMaker, that serves this model",
    'runtime = boto3.client("sagemaker-runtime", endpoint_url="http://localhost:8088", region_name="us-east-1",',
    '                       aws_access_key_id="any", aws_secret_access_key="any")');
  lines.push(`answer = runtime.invoke_endpoint(EndpointName=${JSON.stringify(model.name)}, ContentType="application/json", Body=${body})`, 'print(answer["Body"].read().decode())');
  return lines.join("\n");
}

/** Clients: name, whether it can make such a call, and the code. */
export const SNIPPETS = [
  { name: "curl", applies: () => true, code: curl },
  { name: "tritonclient", applies: () => true, code: tritonclient },
  { name: "boto3", applies: (model) => !model.decoupled, code: boto3 },
];

/** The files that the code reads: [name, bytes or text]. */
export function filesOf(model, request, encode) {
  const large = request.inputs.filter((tensor) => !inline(tensor) && elements(tensor.shape));
  if (!large.length || model.decoupled) return [];
  const files = large.filter((tensor) => !tensor.bytes && !(tensor.values[0] instanceof Uint8Array)).map((tensor) => [fileOf(tensor), encode(tensor.values, tensor.datatype)]);
  const whole = { ...request, inputs: request.inputs.map((tensor) => ({ name: tensor.name, datatype: tensor.datatype, shape: tensor.shape, data: tensor.values })) };
  if (large.every((tensor) => tensor.values && !(tensor.values[0] instanceof Uint8Array))) {
    files.push(["request.json", JSON.stringify({ inputs: whole.inputs, ...(request.outputs && { outputs: request.outputs }), parameters: request.parameters }, (_, value) => (typeof value === "bigint" ? Number(value) : value))]);
  }
  return files;
}
