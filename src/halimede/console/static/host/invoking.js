// Requests to endpoints on their way, and their answers.

import { ask, failure } from "../calls.js";

const OPERATIONS = { whole: "invocations", stream: "invocations-response-stream", queued: "async-invocations" };
const HEADERS = { model: "X-Amzn-SageMaker-Target-Model", variant: "X-Amzn-SageMaker-Target-Variant", session: "X-Amzn-SageMaker-Session-Id" };

/** The path of a request. */
export const pathOf = (request) => `/endpoints/${encodeURIComponent(request.endpoint)}/${OPERATIONS[request.kind]}`;

/** The headers of a request: [name, value]. */
export function headersOf(request) {
  const headers = [["Content-Type", request.type]];
  if (request.accept) headers.push([request.kind === "stream" ? "X-Amzn-SageMaker-Accept" : "Accept", request.accept]);
  for (const [name, header] of Object.entries(HEADERS)) if (request[name]) headers.push([header, request[name]]);
  return headers;
}

/** Send a request: its response, if it was accepted; otherwise an error with the host's words. */
export async function send(request, signal) {
  const response = await ask(pathOf(request), { method: "POST", headers: Object.fromEntries(headersOf(request)), body: request.file ?? request.body, signal });
  if (!response.ok) throw await failure(response);
  return response;
}

/**
 * The pieces of a response stream as they come, as bytes. Each is a frame of
 * https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html; one that tells of an error becomes an error.
 */
export async function* pieces(response) {
  const reader = response.body.getReader();
  let waiting = new Uint8Array(0);
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting = joined(waiting, value);
    while (waiting.length >= 12) {
      const view = new DataView(waiting.buffer, waiting.byteOffset);
      const length = view.getUint32(0);
      if (waiting.length < length) break;
      const head = 12 + view.getUint32(4);
      const headers = new TextDecoder().decode(waiting.subarray(12, head));
      const payload = waiting.subarray(head, length - 4);
      if (headers.includes(":exception-type")) throw new Error(JSON.parse(new TextDecoder().decode(payload)).Message);
      yield payload;
      waiting = waiting.subarray(length);
    }
  }
}

function joined(one, other) {
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}
