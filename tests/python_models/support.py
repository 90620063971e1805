"""Python models in a temporary repository, and a server of them with clients."""

import json
import os
import signal
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.support.server import ServerProcess, start_server

Array = NDArray[Any]

IMPORTS = (
    "import asyncio, json, os, sys, threading, time; "
    "import numpy as np; import triton_python_backend_utils as pb_utils\n"
)

FLOATS = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""
TEXTS = FLOATS.replace("FP32", "STRING")
BATCHED = (
    FLOATS
    + """
max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 2000000 preferred_batch_size: [4] }
"""
)
IN_SERVER = 'parameters { key: "isolation" value: { string_value: "none" } }\n'
DECOUPLED = "model_transaction_policy { decoupled: true }"

RATE_LIMITER = "--rate-limit=execution_count"

ONES = np.ones(4, np.float32)


def python_model(directory: Path, name: str, source: str, config: str) -> Path:
    """Write a model into a repository: the path of its file.

    Args:
        directory: the repository.
        name: the model's name.
        source: its code, after the usual imports.
        config: its `config.pbtxt` but for name and backend.
    """
    model = directory / name
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "python"\n{config}')
    file = model / "1" / "model.py"
    file.write_text(IMPORTS + textwrap.dedent(source))
    return file


def executing(body: str) -> str:
    """A model whose `execute` is this body."""
    return "class TritonPythonModel:\n    def execute(self, requests):\n" + textwrap.indent(
        textwrap.dedent(body).strip("\n"), " " * 8
    )


def answering(expression: str) -> str:
    """A model that answers each request with the array, computed of its input `x`."""
    return executing(f"""
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", {expression})]))
        return responses
    """)


class Models:
    """A server of Python models, in explicit mode, with clients.

    Attributes:
        repository: its model repository.
        server: the process.
        http, grpc: clients.
        in_server: the models that it writes run in the server's process.
        last_name: that of the model that was written last, unless the test named it.
    """

    in_server = False

    def __init__(self, repository: Path, server: ServerProcess) -> None:
        self.repository = repository
        self.server = server
        self.http = httpclient.InferenceServerClient(server.http, concurrency=8, network_timeout=60)
        self.grpc = grpcclient.InferenceServerClient(server.grpc)
        self.grpc.infer = partial(self.grpc.infer, client_timeout=60)  # a test shall not hang
        self.last_name = ""
        self._numbers = count(1)

    def close(self) -> None:
        """Close the clients."""
        self.http.close()
        self.grpc.close()

    def unload_all(self) -> None:
        """Unload what is loaded, so that no process works on."""
        for model in self.http.get_model_repository_index():
            if model.get("state") == "READY":
                self.http.unload_model(model["name"])

    def new_name(self) -> str:
        """A name that no other model has."""
        self.last_name = f"m{next(self._numbers)}"
        return self.last_name

    def write(self, source: str, config: str = FLOATS, name: str = "") -> str:
        """A new model in the repository, that is not loaded: its name."""
        name = name or self.new_name()
        python_model(self.repository, name, source, config + IN_SERVER * self.in_server)
        return name

    def load(self, source: str, config: str = FLOATS, name: str = "") -> str:
        """A new model, loaded: its name."""
        name = self.write(source, config, name)
        self.http.load_model(name)
        return name

    def load_config(self, config: str) -> str:
        """A new model that is only a configuration, such as an ensemble, loaded: its name."""
        name = self.new_name()
        (self.repository / name / "1").mkdir(parents=True)
        (self.repository / name / "config.pbtxt").write_text(f'name: "{name}" {config}')
        self.http.load_model(name)
        return name

    def load_error(self, source: str, config: str = FLOATS, name: str = "") -> str:
        """What the server says to a model that it cannot load; it is ready again, as the model is wanted no more."""
        name = self.write(source, config, name)
        with pytest.raises(InferenceServerException) as caught:
            self.http.load_model(name)
        self.http.unload_model(name)
        return str(caught.value.message())

    def infer(self, model: str, array: Array = ONES, output: str = "OUT", **options: Any) -> Array:
        """The output for an input, over HTTP."""
        result = self.http.infer(model, http_inputs(IN=array), **options)
        value: Array | None = result.as_numpy(output)
        assert value is not None, result.get_response()
        return value

    def infer_error(self, model: str, array: Array = ONES) -> tuple[str, str]:
        """Status and message of an inference over HTTP that fails."""
        with pytest.raises(InferenceServerException) as caught:
            self.http.infer(model, http_inputs(IN=array))
        return str(caught.value.status()), str(caught.value.message())

    def infer_at_once(self, model: str, arrays: Sequence[Array]) -> list[Any]:
        """The outputs, or errors, for inputs that are sent together over gRPC."""
        outcomes: list[Any] = [None] * len(arrays)
        done = Semaphore(0)

        def take(index: int, result: grpcclient.InferResult, error: InferenceServerException) -> None:
            outcomes[index] = error or result.as_numpy("OUT")
            done.release()

        for index, array in enumerate(arrays):
            self.grpc.async_infer(model, grpc_inputs(IN=array), partial(take, index))
        for _ in arrays:
            assert done.acquire(timeout=60)
        return outcomes

    def ready(self, model: str) -> bool:
        """Whether the server says that the model is ready."""
        return self.server.get(f"/v2/models/{model}/ready")[0] == 200

    def pids(self, model: str) -> list[int]:
        """The worker processes of a model's instances, of all models for ""."""
        return [
            pid
            for pid, name in processes(self.server.process.pid).items()
            if name.startswith(f"halimede-{model}_" if model else "halimede-")
            and not name.startswith("halimede-front")
        ]

    def statistics(self, model: str) -> dict[str, Any]:
        """The statistics of the model's only version."""
        _, body = self.server.get(f"/v2/models/{model}/versions/1/stats")
        statistics: dict[str, Any] = json.loads(body)["model_stats"][0]
        return statistics


@contextmanager
def serve_models(repository: Path, *flags: str, program: str = "halimede") -> Iterator[Models]:
    """A server of a repository that loads what it is told to."""
    usual = ("--model-control-mode=explicit", "--exit-timeout-secs=5")
    with start_server(repository, *usual, *flags, program=program) as server:
        models = Models(repository, server)
        try:
            yield models
        finally:
            models.close()


def http_inputs(**arrays: Array) -> list[httpclient.InferInput]:
    """Inputs for an inference over HTTP."""
    inputs = []
    for name, array in arrays.items():
        inputs.append(httpclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    return inputs


def grpc_inputs(**arrays: Array) -> list[grpcclient.InferInput]:
    """Inputs for an inference over gRPC."""
    inputs = []
    for name, array in arrays.items():
        inputs.append(grpcclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    return inputs


def processes(ancestor: int) -> dict[int, str]:
    """The processes that descend from one, each with its name."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            name, _, rest = text.partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent), name
    found: dict[int, str] = {}
    ahead = [ancestor]
    while ahead:
        above = ahead.pop()
        for pid, (its_parent, name) in parents.items():
            if its_parent == above and pid not in found:
                found[pid] = name
                ahead.append(pid)
    return found


def is_running(pid: int) -> bool:
    """Whether there is such a process, that has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def kill(pid: int) -> None:
    """Kill a process as the system might."""
    os.kill(pid, signal.SIGKILL)


class Stream:
    """A gRPC stream of requests to models, whose answers are taken one by one."""

    def __init__(self, models: Models) -> None:
        self.client = grpcclient.InferenceServerClient(models.server.grpc)
        self._answers: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        self.client.start_stream(lambda result, error: self._answers.put((result, error)))

    def send(self, model: str, array: Array = ONES, request_id: str = "", final: bool = True) -> None:
        """Send a request; with `final`, the last response is marked even if it is empty."""
        self.client.async_stream_infer(
            model, grpc_inputs(IN=array), request_id=request_id, enable_empty_final_response=final
        )

    def take(self, timeout: float = 60) -> "Answer":
        """The next answer."""
        result, error = self._answers.get(timeout=timeout)
        if error is not None:
            return Answer(str(error.message()), None, final=False)
        response = result.get_response()
        final = response.parameters["triton_final_response"].bool_param
        return Answer("", result.as_numpy("OUT"), final=final, request_id=response.id)

    def take_all(self, count: int) -> "list[Answer]":
        """The next answers."""
        return [self.take() for _ in range(count)]

    def close(self, *, cancel: bool = False) -> None:
        """End the stream, when all is answered or at once."""
        self.client.stop_stream(cancel_requests=cancel)
        self.client.close()


@dataclass
class Answer:
    """What came on a stream: an error, an array, or nothing but that it is the last."""

    error: str
    array: Array | None
    final: bool
    request_id: str = ""

    @property
    def value(self) -> float | None:
        """The array's first element."""
        return None if self.array is None else float(self.array.reshape(-1)[0])
