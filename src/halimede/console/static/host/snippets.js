// The same invocation as code to copy. A further client is a further entry of SNIPPETS.

import { headersOf, pathOf } from "./invoking.js";
import { givenKey } from "./sign.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const PARAMETERS = { accept: "Accept", model: "TargetModel", variant: "TargetVariant", session: "SessionId" };
const OPTIONS = { accept: "--accept", model: "--target-model", variant: "--target-variant", session: "--session" };
const OPERATIONS = { whole: "invoke_endpoint", stream: "invoke_endpoint_with_response_stream", queued: "invoke_endpoint_async" };

function curl(request, region) {
  if (request.kind === "stream") return null; // its frames are no text
  const parts = [`curl -s ${location.origin}${pathOf(request)}`];
  if (request.kind === "queued") parts[0] = parts[0].replace("-s", "-si"); // headers say where the result will be
  if (givenKey()) parts.push(`--aws-sigv4 aws:amz:${region}:sagemaker --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"`);
  for (const [name, value] of headersOf(request)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  parts.push(request.file ? `--data-binary ${quoted(`@${request.file.name}`)}` : `--data-raw ${quoted(request.body)}`);
  return parts.join(" \\\n  ");
}

function boto3(request, region) {
  const lines = ["import boto3", ""];
  if (givenKey()) lines.push("# with the key of the environment", `runtime = boto3.client("sagemaker-runtime", endpoint_url="${location.origin}", region_name="${region}")`);
  else {
    lines.push(`runtime = boto3.client("sagemaker-runtime", endpoint_url="${location.origin}", region_name="${region}",`,
      '                       aws_access_key_id="any", aws_secret_access_key="any")');
  }
  const given = [["EndpointName", request.endpoint], ["ContentType", request.type], ...Object.entries(PARAMETERS).filter(([name]) => request[name]).map(([name, parameter]) => [parameter, request[name]])];
  const body = request.file ? `open(${JSON.stringify(request.file.name)}, "rb")` : JSON.stringify(request.body);
  lines.push(`answer = runtime.${OPERATIONS[request.kind]}(`, ...given.map(([name, value]) => `    ${name}=${JSON.stringify(value)},`), `    Body=${body},`, ")");
  if (request.kind === "whole") lines.push('print(answer["Body"].read().decode())');
  if (request.kind === "queued") lines.push('print(answer["OutputLocation"])');
  if (request.kind === "stream") lines.push('for event in answer["Body"]:', '    print(event["PayloadPart"]["Bytes"].decode(), end="", flush=True)');
  return lines.join("\n");
}

function halimede(request, region) {
  const parts = [`halimede invoke ${request.endpoint} --endpoint-url ${location.origin} --region ${region}`, `--content-type ${quoted(request.type)}`];
  for (const [name, option] of Object.entries(OPTIONS)) if (request[name]) parts.push(`${option} ${quoted(request[name])}`);
  if (request.kind === "stream") parts.push("--stream");
  if (request.kind === "queued") parts.push("--async");
  parts.push(request.file ? `--body ${quoted(request.file.name)}` : `--data ${quoted(request.body)}`);
  return parts.join(" \\\n  ");
}

/** Clients: a name, and the code of a request in a region; null if the client cannot make it. */
export const SNIPPETS = [{ name: "curl", code: curl }, { name: "boto3", code: boto3 }, { name: "halimede", code: halimede }];
