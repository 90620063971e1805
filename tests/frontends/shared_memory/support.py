"""A server of models of every kind, and clients with regions of shared memory."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from tests.python_models.support import FLOATS, TEXTS, answering, executing, python_model
from tests.support.server import ServerProcess, start_server

SIZE = 1 << 20
"""Bytes of a region in a test, more than a tensor may have to travel inside a message to a worker."""

FLOAT_COUNT = SIZE // 4

FILE = Path("/dev/shm")

IN_PROCESS = FLOATS + 'backend: "identity"\n'
PIPELINE = (
    FLOATS
    + """
platform: "ensemble"
ensemble_scheduling { step [
  { model_name: "python" model_version: -1 input_map { key: "IN" value: "IN" }
    output_map { key: "OUT" value: "between" } },
  { model_name: "in_process" model_version: -1 input_map { key: "IN" value: "between" }
    output_map { key: "OUT" value: "OUT" } } ] }
"""
)
PAIRED = FLOATS + "max_batch_size: 2 dynamic_batching { max_queue_delay_microseconds: 60000000 }"

KEEPS = """
class TritonPythonModel:
    kept = None
    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
        if self.kept is None:
            self.kept = x
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.kept)])]
"""

STREAMS = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sender = request.get_response_sender()
            for number in (1, 2):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x * number)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

CALLS = executing("""
    request = pb_utils.InferenceRequest(
        model_name="python", requested_output_names=["OUT"], inputs=requests[0].inputs())
    response = request.exec()
    return [pb_utils.InferenceResponse(response.output_tensors())]
""")

WAITS = """
class TritonPythonModel:
    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
        wait = json.loads(requests[0].parameters())
        open(wait["begun"], "w").close()
        while not os.path.exists(wait["go"]):
            time.sleep(0.01)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x + 1)])]
"""

MAPPED = executing("""
    requests[0].inputs()[0].as_numpy().sum()
    maps = [line for line in open("/proc/self/maps") if requests[0].request_id() in line]
    count = np.array([len(maps)], np.float32)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", count)])]
""")


def write_models(repository: Path) -> None:
    """Models that answer with their input, and some that do more."""
    (repository / "in_process" / "1").mkdir(parents=True)
    (repository / "in_process" / "config.pbtxt").write_text(IN_PROCESS)
    (repository / "isolated" / "1").mkdir(parents=True)
    isolated = 'parameters { key: "isolation" value { string_value: "process" } }'
    (repository / "isolated" / "config.pbtxt").write_text(IN_PROCESS + isolated)
    (repository / "pipeline" / "1").mkdir(parents=True)
    (repository / "pipeline" / "config.pbtxt").write_text(PIPELINE)
    python_model(repository, "python", answering("x"), FLOATS)
    python_model(repository, "cached", answering("x"), FLOATS + "response_cache { enable: true }")
    python_model(repository, "strings", answering("x"), TEXTS)
    python_model(repository, "in_place", answering("np.add(x, 1, out=x)"), PAIRED)
    python_model(repository, "keeps", KEEPS, FLOATS)
    python_model(repository, "streams", STREAMS, FLOATS + "model_transaction_policy { decoupled: true }")
    python_model(repository, "calls", CALLS, FLOATS)
    python_model(repository, "waits", WAITS, FLOATS)
    python_model(repository, "mapped", MAPPED, FLOATS)
    python_model(repository, "size", answering("np.array([x.size], np.float32)"), FLOATS)


@contextmanager
def serving(repository: Path, *flags: str) -> Iterator[ServerProcess]:
    """A server of these models, which lets clients register memory."""
    write_models(repository)
    cache = "--cache-config=local,size=16777216"
    with start_server(repository, "--allow-client-shm=true", cache, *flags) as server:
        yield server


class Memory:
    """Shared memory of this process, that goes with the test.

    Attributes:
        key: its name.
        path: its file.
        array: its bytes as floats.
    """

    def __init__(self, size: int = SIZE, values: Any = 0) -> None:
        self.key = f"/halimede-test-{uuid.uuid4().hex}"
        self.path = FILE / self.key[1:]
        self.array = np.memmap(self.path, np.float32, "w+", shape=(size // 4,))
        self.array[:] = values

    def close(self) -> None:
        """Remove it, if that is not done."""
        self.path.unlink(missing_ok=True)


class Client:
    """A client of one protocol, for all that both can do alike."""

    def __init__(self, module: ModuleType, address: str) -> None:
        self.module = module
        self.address = address
        self.triton = module.InferenceServerClient(address)

    def infer_apart(self, *arguments: Any, **options: Any) -> Any:
        """As `infer`, from any thread."""
        other = Client(self.module, self.address)
        try:
            return other.infer(*arguments, **options)
        finally:
            other.triton.close()

    def register(self, memory: Memory, name: str, offset: int = 0, size: int = 0) -> str:
        """Register memory: the region's name."""
        self.triton.register_system_shared_memory(
            name, memory.key, size or memory.array.nbytes - offset, offset
        )
        return name

    def status(self) -> list[str]:
        """Names of the regions that are registered."""
        status = self.triton.get_system_shared_memory_status(**self._json())
        regions = status if isinstance(status, list) else status.get("regions", {}).values()
        return sorted(region["name"] for region in regions)

    def _json(self) -> dict[str, bool]:
        return {"as_json": True} if self.module is grpcclient else {}

    def input(self, region: str, count: int, offset: int = 0, datatype: str = "FP32", size: int = 0) -> Any:
        """An input of so many elements that is in a region."""
        tensor = self.module.InferInput("IN", [count], datatype)
        tensor.set_shared_memory(region, size or count * 4, offset)
        return tensor

    def output(self, region: str, size: int, offset: int = 0) -> Any:
        """An output that goes into a region."""
        output = self.module.InferRequestedOutput("OUT")
        output.set_shared_memory(region, size, offset)
        return output

    def infer(self, model: str, tensor: Any, output: Any = None, **options: Any) -> Any:
        """The result of a request."""
        return self.triton.infer(model, [tensor], outputs=None if output is None else [output], **options)

    def close(self) -> None:
        """Unregister everything and close the connection."""
        self.triton.unregister_system_shared_memory()
        self.triton.close()


def http(server: ServerProcess) -> Client:
    """A client over HTTP."""
    return Client(httpclient, server.http)


def grpc(server: ServerProcess) -> Client:
    """A client over gRPC."""
    return Client(grpcclient, server.grpc)
