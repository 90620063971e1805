"""Regions of a real GPU's memory, which tritonclient's own tools make and register."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from halimede.backends.placement import placement
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.gpus import visible_gpus
from tests.frameworks.gpu.building import run_code
from tests.support.onnx_models import write_model
from tests.support.server import ServerProcess, start_server

missing = (
    placement(ModelConfig(backend="pytorch"), visible_gpus()).missing
    or ("" if find_spec("torch") else "torch is not installed")
    or ("" if find_spec("cuda") else "cuda-python is not installed")
)
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"needs a GPU: {missing}"),
    pytest.mark.timeout(300),
]

COUNT = 1 << 18
SIZE = 4 * COUNT
VALUES = np.arange(COUNT, dtype=np.float32)
TENSORS = (
    'input { name: "IN" data_type: TYPE_FP32 dims: -1 } output { name: "OUT" data_type: TYPE_FP32 dims: -1 } '
)
SCRIPT = """
import sys, torch
class Next(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1
torch.jit.save(torch.jit.script(Next()), sys.argv[1])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of `on_gpu`, which adds one, and of `on_host`, which answers with its input."""
    repository = tmp_path_factory.mktemp("repository")
    gpu = 'backend: "pytorch" instance_group { kind: KIND_GPU gpus: 0 }'
    path = write_model(repository, "on_gpu", None, TENSORS.replace('"OUT"', '"OUTPUT__0"') + gpu)
    path = path / "1" / "model.pt"
    run_code(SCRIPT, path)
    write_model(repository, "on_host", None, TENSORS + 'backend: "identity"')
    with start_server(repository, "--allow-client-shm=true") as started:
        yield started


class Client:
    """A client of one protocol, and its regions."""

    def __init__(self, module: ModuleType, address: str) -> None:
        import tritonclient.utils.cuda_shared_memory as tools

        self.module = module
        self.tools = tools
        self.triton = module.InferenceServerClient(address)
        self.made: list[Any] = []

    def region(self, name: str, size: int = SIZE, values: Any = None) -> Any:
        """Memory of the GPU, registered under that name."""
        made = self.tools.create_shared_memory_region(name, size, 0)
        self.made.append(made)
        self.tools.set_shared_memory_region(made, [np.zeros(size, np.uint8) if values is None else values])
        self.triton.register_cuda_shared_memory(name, self.tools.get_raw_handle(made), 0, size)
        return made

    def contents(self, region: Any, count: int = COUNT, offset: int = 0) -> Any:
        """Floats that are in a region, from that byte on."""
        found = self.tools.get_contents_as_numpy(region, np.float32, [COUNT])
        return found[offset // 4 : offset // 4 + count]

    def infer(self, model: str, source: tuple[str, int, int], target: tuple[str, int, int] | None) -> Any:
        """The result of a request whose tensors are at (region, bytes, offset)."""
        tensor = self.module.InferInput("IN", [source[1] // 4], "FP32")
        tensor.set_shared_memory(*source)
        output = self.module.InferRequestedOutput("OUT" if model == "on_host" else "OUTPUT__0")
        if target is not None:
            output.set_shared_memory(*target)
        return self.triton.infer(model, [tensor], outputs=[output])

    def status(self) -> Any:
        """The regions that are registered."""
        if self.module is grpcclient:
            found = self.triton.get_cuda_shared_memory_status(as_json=True).get("regions", {}).values()
            return sorted(
                (each["name"], int(each.get("device_id", 0)), int(each["byte_size"])) for each in found
            )
        found = self.triton.get_cuda_shared_memory_status()
        return sorted((each["name"], each["device_id"], each["byte_size"]) for each in found)

    def close(self) -> None:
        """Unregister everything, and free the memory."""
        self.triton.unregister_cuda_shared_memory()
        assert self.status() == []
        for each in self.made:
            self.tools.destroy_shared_memory_region(each)
        self.triton.close()


@pytest.fixture(params=["http", "grpc"])
def client(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client over each protocol."""
    module = httpclient if request.param == "http" else grpcclient
    opened = Client(module, getattr(server, request.param))
    yield opened
    opened.close()


@pytest.mark.parametrize(("model", "added"), [("on_gpu", 1), ("on_host", 0)])
@pytest.mark.parametrize("count", [4, COUNT])
def test_tensors_go_through_regions(client: Client, model: str, added: int, count: int) -> None:
    client.region("in", values=VALUES)
    target = client.region("out")
    assert client.status() == [("in", 0, SIZE), ("out", 0, SIZE)]
    for _ in range(3):
        client.infer(model, ("in", 4 * count, 0), ("out", 4 * count, 0))
        found = client.contents(target)
        assert np.array_equal(found[:count], VALUES[:count] + added)
        assert not found[count:].any()


@pytest.mark.parametrize(("model", "added"), [("on_gpu", 1), ("on_host", 0)])
def test_offsets_and_outputs_in_the_response(client: Client, model: str, added: int) -> None:
    both = client.region("both", values=VALUES)
    client.infer(model, ("both", 400, 40), ("both", 400, 4000))
    assert client.contents(both, 100, 4000).tolist() == (VALUES[10:110] + added).tolist()
    result = client.infer(model, ("both", 400, 40), None)
    name = "OUT" if model == "on_host" else "OUTPUT__0"
    assert result.as_numpy(name).tolist() == (VALUES[10:110] + added).tolist()


def test_new_values_in_a_region_are_seen(client: Client) -> None:
    source, target = client.region("in"), client.region("out")
    for factor in (1, 2, 3):
        client.tools.set_shared_memory_region(source, [VALUES * factor])
        client.infer("on_gpu", ("in", SIZE, 0), ("out", SIZE, 0))
        assert np.array_equal(client.contents(target), VALUES * factor + 1)


def test_what_is_none_is_refused_and_the_server_goes_on(client: Client, server: ServerProcess) -> None:
    made = client.region("in", values=VALUES)
    handle = client.tools.get_raw_handle(made)
    for arguments, text in (
        (("in", handle, 0, SIZE), "already in manager"),
        (("b", handle, 7, SIZE), "failed to register shared memory region 'b': invalid args: "),
        (("b", handle, 0, 1 << 40), "failed to register shared memory region 'b': invalid args: "),
        (
            ("b", b"AAAA" * 21 + b"AA==", 0, SIZE),
            "failed to register shared memory region 'b': invalid args: ",
        ),
    ):
        with pytest.raises(InferenceServerException, match=text):
            client.triton.register_cuda_shared_memory(*arguments)
    with pytest.raises(InferenceServerException, match="Invalid offset"):
        client.infer("on_gpu", ("in", SIZE, 4), None)
    result = client.infer("on_gpu", ("in", 16, 0), None)
    assert result.as_numpy("OUTPUT__0").tolist() == [1, 2, 3, 4]
    assert json.loads(server.get("/v2/cudasharedmemory/status")[1]) == [
        {"name": "in", "device_id": 0, "byte_size": SIZE}
    ]
