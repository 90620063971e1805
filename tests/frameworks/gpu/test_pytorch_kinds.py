"""PyTorch models of every kind on a real GPU: results, sequences, memory that is short, and memory that comes back."""

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from halimede.backends.base import InstanceSpec
from halimede.backends.placement import placement
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.gpus import missing_for_metrics, nvml, visible_gpus
from tests.backends.helpers import Loaded
from tests.backends.sequences import ACCUMULATOR, check_accumulator
from tests.frameworks.gpu.building import run_code
from tests.support.onnx_models import write_model
from tests.support.server import ServerProcess, run_command, start_server

missing = placement(ModelConfig(backend="pytorch"), visible_gpus()).missing or (
    "" if find_spec("torch") else "torch is not installed"
)
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"needs a GPU: {missing}"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]

GPU = "instance_group { kind: KIND_GPU gpus: 0 }"
ONE = """backend: "pytorch" max_batch_size: 8 dynamic_batching { }
    input { name: "x" data_type: TYPE_FP32 dims: 4 }
    output { name: "y" data_type: TYPE_FP32 dims: 4 } """
GIB = 1 << 30

BUILD = """
import sys, torch
from pathlib import Path
root = Path(sys.argv[1])

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x + self.weight

class Where(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, float(x.is_cuda))

class Fill(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        block = torch.empty([int(x[0, 0].item()), 1 << 30], dtype=torch.uint8, device=x.device)
        return x + block.size(1) * 0

class Large(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.zeros(2**28))
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight[:4]

for name, module in (("script", Scale()), ("where", Where()), ("fill", Fill()), ("large", Large())):
    torch.jit.save(torch.jit.script(module.eval()), root / name / "1" / "model.pt")
batch = torch.export.Dim("batch", min=1, max=64)
program = torch.export.export(Scale().eval(), (torch.zeros(2, 4),), dynamic_shapes={"x": {0: batch}})
with open(root / "exported" / "1" / "model.pt", "wb") as file:
    torch.export.save(program, file)
with open(root / "program.pt2", "wb") as file:
    torch.export.save(program, file)
"""

MODULE = """
import torch

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))

    def forward(self, x):
        assert x.is_cuda and self.weight.is_cuda
        return {"y": 2 * x + self.weight}
"""


def post(server: ServerProcess, path: str, body: object) -> Any:
    """What the server answers; an error fails with its status and text."""
    url = f"http://{server.http}/v2/{path}"
    try:
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=300) as response:
            return json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"{error.code} {error.read().decode()}") from error


def infer(server: ServerProcess, model: str, row: list[float], name: str = "x") -> list[float]:
    """The output of one row, which is the input of that name."""
    tensor = {"name": name, "datatype": "FP32", "shape": [1, 4], "data": row}
    data: list[float] = post(server, f"models/{model}/infer", {"inputs": [tensor]})["outputs"][0]["data"]
    return data


def control(server: ServerProcess, model: str, action: str) -> None:
    """Load or unload a model."""
    post(server, f"repository/models/{model}/{action}", {})


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of every kind; `package` only where there is a C++ compiler."""
    root = tmp_path_factory.mktemp("repository")
    for name in ("script", "where", "fill", "large", "exported"):
        write_model(root, name, None, ONE + GPU)
    unnamed = ONE.replace('"y"', '"OUTPUT__0"')
    for name in ("exported", "script", "where", "fill", "large"):
        (root / name / "config.pbtxt").write_text(unnamed + GPU)
    path = write_model(root, "module", None, ONE + GPU + ' runtime: "model.py"') / "1" / "model.py"
    path.write_text(MODULE)
    run_code(BUILD, root)
    return root


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ServerProcess]:
    """A server of these models, none of which is loaded."""
    with start_server(repository, "--model-control-mode=explicit") as started:
        yield started


@pytest.fixture
def loaded(server: ServerProcess) -> Iterator[Callable[[str], None]]:
    """Loads a model for the test."""
    names = []

    def load(name: str) -> None:
        control(server, name, "load")
        names.append(name)

    yield load
    for name in names:
        control(server, name, "unload")


def used() -> int:
    """Bytes of the first GPU's memory that are in use."""
    with nvml() as library:
        assert library is not None
        handle = library.nvmlDeviceGetHandleByIndex(0)
        return int(library.nvmlDeviceGetMemoryInfo(handle).used)


def gauge(server: ServerProcess) -> float:
    """What the metric says of the memory in use."""
    _, body = server.get("/metrics", server.metrics)
    (value,) = (
        float(line.split()[-1])
        for line in body.decode().splitlines()
        if line.startswith("nv_gpu_memory_used_bytes{")
    )
    return value


@pytest.mark.skipif(bool(missing_for_metrics()), reason=f"needs nvidia-ml-py: {missing_for_metrics()}")
def test_unloading_gives_the_memory_back_and_metrics_show_it(repository: Path) -> None:
    # a server of its own, before any other: the memory of models and processes that end is not to be counted
    flags = ("--model-control-mode=explicit", "--metrics-interval-ms=50", "--load-model=script")
    with start_server(repository, *flags) as server:
        infer(server, "script", [1, 2, 3, 4])  # CUDA's own memory is there from now on
        before = used()
        for _ in range(2):
            control(server, "large", "load")
            assert infer(server, "large", [1, 2, 3, 4]) == [1, 2, 3, 4]
            assert used() - before >= GIB
            server.wait_until(lambda: gauge(server) - before >= GIB, "the metric to show the memory")
            control(server, "large", "unload")
            server.wait_until(lambda: used() - before < GIB // 8, "the memory to come back")
        server.wait_until(lambda: gauge(server) - before < GIB // 8, "the metric to show that")


@pytest.mark.parametrize("kind", ["script", "exported", "module"])
def test_a_model_of_every_kind_computes_on_the_gpu(
    server: ServerProcess, loaded: Callable[[str], None], kind: str
) -> None:
    loaded(kind)
    for _ in range(3):
        assert infer(server, kind, [1, 2, 3, 4]) == [2, 5, 8, 11]


def test_inputs_of_a_script_are_on_the_gpu(server: ServerProcess, loaded: Callable[[str], None]) -> None:
    loaded("where")
    assert infer(server, "where", [0, 0, 0, 0]) == [1, 1, 1, 1]


@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles with a C++ compiler (g++)")
def test_a_package_that_was_built_here_computes_on_the_gpu(
    repository: Path, server: ServerProcess, loaded: Callable[[str], None]
) -> None:
    text = ONE.replace('"y"', '"OUTPUT__0"').replace('"x"', '"x__0"') + GPU + ' platform: "torch_aoti"'
    path = write_model(repository, "package", None, text) / "1" / "model.pt2"
    program = repository / "program.pt2"
    built = run_command(
        "build-engine", "--format=aoti", "--device=cuda:0",
        f"--program={program}", f"--save-engine={path}", timeout=400,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    assert "package for cuda:0, in " in built.stdout
    loaded("package")
    assert infer(server, "package", [1, 2, 3, 4], "x__0") == [2, 5, 8, 11]


def test_memory_that_is_short_is_an_error_of_the_request_alone(
    server: ServerProcess, loaded: Callable[[str], None]
) -> None:
    loaded("fill")
    with pytest.raises(AssertionError, match=r"^503 .*CUDA out of memory"):
        infer(server, "fill", [100000, 0, 0, 0])
    assert infer(server, "fill", [1, 2, 3, 4]) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["Accumulator", "InPlaceAccumulator"])
def test_sequences_have_states(tmp_path: Path, name: str) -> None:
    from tests.frameworks.pytorch import test_pytorch_states as states
    from tests.frameworks.pytorch.torch_helpers import source_of

    module: Any = getattr(states, name)()
    model = Loaded(source_of(tmp_path, module, states.TENSORS + ACCUMULATOR))
    model.instance = model.backend.create_instance(InstanceSpec("m_1", 1, "KIND_GPU", 0))
    check_accumulator(model)
