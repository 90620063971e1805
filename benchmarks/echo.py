"""The limit of the transports: a server that answers with the request's own tensor bytes and has no engine.

What it says beside those bytes (metadata, configuration, the header of an inference response) is recorded from
the real server, so that both sides move the same bytes.
"""

import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

import grpc

from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, process
from benchmarks.tools import ROOT
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest

SERVICE = "/inference.GRPCInferenceService/"
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass(frozen=True, slots=True)
class Recording:
    """What the echo server needs to know; bytes are in base64, so that all of it is JSON.

    Attributes:
        model: the model's name.
        tensor_bytes: size of the tensor that comes in and goes out.
        pages: path → body of what a GET brings.
        messages: gRPC method → message of what a call brings.
        http_head: the JSON header of an inference response.
        grpc_head: an inference response up to its tensor's bytes.
    """

    model: str
    tensor_bytes: int
    pages: dict[str, str]
    messages: dict[str, str]
    http_head: str
    grpc_head: str


def record(server: Server, model: str, shape: Sequence[int]) -> Recording:
    """Ask the real server everything that perf_analyzer asks, over both protocols."""
    tensor = bytes(4 * prod(shape))
    paths = ["/v2", "/v2/health/live", "/v2/health/ready"]
    paths += [f"/v2/models/{model}{tail}" for tail in ("", "/config", "/stats", "/ready")]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=UNLIMITED) as channel:

        def call(method: str, request: bytes) -> bytes:
            answer: bytes = channel.unary_unary(SERVICE + method)(request, timeout=60)
            return answer

        name = bytes([0x0A, len(model)]) + model.encode()  # each of these requests has the name in field 1
        messages = {method: call(method, b"") for method in ("ServerLive", "ServerReady", "ServerMetadata")}
        for method in ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"):
            messages[method] = call(method, name)
        request = ModelInferRequest(model_name=model, raw_input_contents=[tensor])
        request.inputs.add(name="INPUT0", datatype="FP32", shape=shape)
        answer = call("ModelInfer", request.SerializeToString())
    return Recording(
        model,
        len(tensor),
        {path: text(server.get(path)) for path in paths},
        {SERVICE + method: text(message) for method, message in messages.items()},
        text(http_head(server, model, shape, tensor)),
        text(answer[: len(answer) - len(tensor)]),
    )


def http_head(server: Server, model: str, shape: Sequence[int], tensor: bytes) -> bytes:
    """The JSON header of the response to a binary request."""
    header = {
        "inputs": [
            {
                "name": "INPUT0",
                "datatype": "FP32",
                "shape": list(shape),
                "parameters": {"binary_data_size": len(tensor)},
            }
        ],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(header).encode()
    status, body, headers = server.request(
        "POST", f"/v2/models/{model}/infer", head + tensor, Inference_Header_Content_Length=str(len(head))
    )
    if status != 200:
        raise BenchmarkError(f"The inference to record failed with {status}: {body.decode(errors='replace')}")
    return body[: int(headers["Inference-Header-Content-Length"])]


def text(data: bytes) -> str:
    """The bytes in base64."""
    return base64.b64encode(data).decode()


@contextmanager
def serve(recording: Recording, on_cores: Collection[int]) -> Iterator[Server]:
    """The echo server, ready."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "recording.json"
        path.write_text(json.dumps(asdict(recording)))
        command: list[str | Path] = [sys.executable, "-m", "benchmarks.echo_server", path]
        with process(command, on_cores, cwd=ROOT, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            ports = child.stdout.readline()
            if not ports:
                raise BenchmarkError("The echo server ended at its start")
            http_port, grpc_port = json.loads(ports)
            yield Server(child, http_port, grpc_port)
