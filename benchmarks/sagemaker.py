"""SageMaker's container contract beside the KServe calls of the same server, and loading beside a bare session."""

import ctypes
import hashlib
import http.client
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks import models
from benchmarks.connections import Call, median_time
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, cores, free_ports, halimede, pinned
from benchmarks.workload import Compare, Sample, Sides, Workload

MODEL = "onnx_identity"
KEY = hashlib.md5(b"archive", usedforsecurity=False).hexdigest()
INVOKE_GOAL = 1.1
LOAD_GOAL = 1.15
LAYERS, WIDTH = 25, 1000
"""Of the model that is loaded: square layers of 4 MB each."""

_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="


def workloads() -> list[Workload]:
    """Both ways to invoke, and a load."""
    return [
        Workload(
            "invocations", "µs, median", Compare.AT_MOST, INVOKE_GOAL, invocations, cpu_goal=INVOKE_GOAL
        ),
        Workload(
            "models-invoke", "µs, median", Compare.AT_MOST, INVOKE_GOAL, models_invoke, cpu_goal=INVOKE_GOAL
        ),
        Workload("models-load-100MB", "ms", Compare.AT_MOST, LOAD_GOAL, load_100mb),
    ]


def invocations(seconds: float) -> AbstractContextManager[Sides]:
    """`/invocations` beside `/v2/models/…/infer`."""
    return invoking(seconds, "/invocations", MODEL)


def models_invoke(seconds: float) -> AbstractContextManager[Sides]:
    """`/models/…/invoke` beside `/v2/models/…/infer`."""
    return invoking(seconds, f"/models/{KEY}/invoke", KEY)


@contextmanager
def invoking(seconds: float, path: str, model: str) -> Iterator[Sides]:
    """One request at a time with a small binary tensor, at the two ports of one server."""
    server_core, client_core = cores()
    header, tensor = small_request()
    body = header + tensor
    with served(server_core) as (server, port), pinned(client_core):
        if model == KEY:
            post(port, "/models", json.dumps({"model_name": KEY, "url": str(hosted(models.onnx_identity()))}))
        ours = Call(port, path, {"Content-Type": f"{_BINARY}{len(header)}"}, body)
        length = {"Inference-Header-Content-Length": str(len(header))}
        other = Call(server.http_port, f"/v2/models/{model}/infer", length, body)
        yield Sides(lambda: median_time(server, ours, seconds), lambda: median_time(server, other, seconds))


def small_request() -> tuple[bytes, bytes]:
    """The header and the tensor of a request for the model: FP32 [1, 16] in and out, both as bytes."""
    tensor = np.arange(16, dtype=np.float32).tobytes()
    document = {
        "inputs": [
            {
                "name": "INPUT0",
                "shape": [1, 16],
                "datatype": "FP32",
                "parameters": {"binary_data_size": len(tensor)},
            }
        ],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    return json.dumps(document).encode(), tensor


@contextmanager
def load_100mb(_seconds: float) -> Iterator[Sides]:
    """`POST /models` until it answers; the limit is a session of the same file with as many threads.

    Both load into memory that is fresh from the system, as the first load of a model does. A loop that makes one
    session after the other would load into what the one before has left, which takes less than two thirds of the time.
    """
    model = large_model()
    url = str(hosted(model))
    document = json.dumps({"model_name": KEY, "url": url})
    onnx_file = str(next(Path(url).rglob("model.onnx")))
    with served(None) as (_, port):

        def ours() -> Sample:
            started = time.perf_counter()
            post(port, "/models", document)
            took = time.perf_counter() - started
            ask(port, "DELETE", f"/models/{KEY}")
            return Sample(took * 1e3)

        def limit() -> Sample:
            trim_memory()
            started = time.perf_counter()
            session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
            took = time.perf_counter() - started
            del session
            return Sample(took * 1e3)

        yield Sides(ours, limit)


def trim_memory() -> None:
    """Give memory that is free back to the system (glibc)."""
    ctypes.CDLL(None).malloc_trim(0)


def large_model() -> Path:
    """`dense`: FP32 [1, 1000] through 25 layers, 100 MB of random weights."""
    random = np.random.default_rng(0)
    nodes, weights, data = [], [], "INPUT0"
    for layer in range(LAYERS):
        values = random.standard_normal((WIDTH, WIDTH), np.float32)
        weights.append(numpy_helper.from_array(values, f"weight{layer}"))
        output = "OUTPUT0" if layer == LAYERS - 1 else f"hidden{layer}"
        nodes.append(helper.make_node("MatMul", [data, f"weight{layer}"], [output]))
        data = output
    port = [1, WIDTH]
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("INPUT0", TensorProto.FLOAT, port)],
        [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, port)],
        weights,
    )
    return models.repository("dense", 'backend: "onnxruntime"\n', models.checked(graph))


def hosted(repository: Path) -> Path:
    """A copy of the repository where a platform extracts archives: what is to be told as the URL."""
    place = models.REPOSITORIES / "hosted" / KEY / "model"
    shutil.rmtree(place.parent, ignore_errors=True)
    shutil.copytree(repository, place)
    return place


@contextmanager
def served(on_cores: set[int] | None) -> Iterator[tuple[Server, int]]:
    """A server that has loaded the small model, with the port for SageMaker's calls."""
    [port] = free_ports(1)
    arguments = [
        "--allow-sagemaker=true",
        "--sagemaker-address=127.0.0.1",
        f"--sagemaker-port={port}",
        f"--sagemaker-model-directory={models.REPOSITORIES / 'hosted'}",
        "--model-control-mode=explicit",
        f"--load-model={MODEL}",
    ]
    with halimede(models.onnx_identity(), on_cores, arguments) as server:
        yield server, port


def post(port: int, path: str, body: str) -> bytes:
    """The body of the answer."""
    return ask(port, "POST", path, body)


def ask(port: int, method: str, path: str, body: str | None = None) -> bytes:
    """The body of the answer; anything but 200 ends the benchmark."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read()
    if answer.status != 200:
        raise BenchmarkError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
    return text
