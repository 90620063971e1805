import subprocess
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

import onnxruntime
import pytest

from halimede.backends import placement as module
from halimede.backends.placement import placement
from halimede.backends.registry import BACKENDS, PYTHON
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.validate import find_problems

ON_GPUS = [
    "dali",
    "onnxruntime",
    "pytorch",
    "python",
    "tensorrt",
    "transformers",
    "vllm",
    "written_in_python",
]
ON_CPUS = [
    "dyna_sequence",
    "fil",
    "identity",
    "implicit_state",
    "openvino",
    "openvino_genai",
    "repeat",
    "sequence",
    "square",
    "tensorflow",
]

# instance_group → the groups that come of it: kind, GPUs and count, where there are GPUs 0 and 1; None for an error
GROUPS: dict[str, list[tuple[str, list[int], int]] | None] = {
    "": [("KIND_GPU", [0, 1], 1)],
    "instance_group { count: 3 }": [("KIND_GPU", [0, 1], 3)],
    "instance_group { kind: KIND_GPU }": [("KIND_GPU", [0, 1], 1)],
    "instance_group { gpus: 1 }": [("KIND_GPU", [1], 1)],
    "instance_group { kind: KIND_GPU gpus: 1 count: 2 }": [("KIND_GPU", [1], 2)],
    "instance_group { kind: KIND_GPU gpus: 2 }": None,
    "instance_group { kind: KIND_CPU count: 4 }": [("KIND_CPU", [], 4)],
    "instance_group { kind: KIND_CPU gpus: 0 }": None,
    "instance_group { kind: KIND_MODEL }": [("KIND_MODEL", [], 1)],
    "instance_group [ { kind: KIND_GPU gpus: 0 }, { kind: KIND_CPU count: 1 } ]": [
        ("KIND_GPU", [0], 1),
        ("KIND_CPU", [], 1),
    ],
}


@pytest.fixture
def gpu_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The frameworks are built for GPUs."""
    install(monkeypatch, tmp_path, torch=torch_files("2.13.0", "13.0"), onnxruntime=onnx_files("gpu"))


def torch_files(version: str, cuda: str | None) -> dict[str, str]:
    return {"version.py": f"__version__ = {version!r}\ncuda = {cuda!r}\n"}


def onnx_files(build: str, version: str = "1.32.0") -> dict[str, str]:
    files = {"capi/build_and_package_info.py": f"__version__ = {version!r}\n"}
    libraries = {"gpu": "libonnxruntime_providers_cuda.so", "windows": "onnxruntime_providers_cuda.dll"}
    return files | ({f"capi/{libraries[build]}": ""} if build in libraries else {})


def install(patch: pytest.MonkeyPatch, directory: Path, **packages: dict[str, str]) -> None:
    """Have these packages, of which only those files are there, and no others."""
    for package, files in packages.items():
        for name, text in files.items():
            path = directory / package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    specs = {name: spec_from_file_location(name, directory / name / "__init__.py") for name in packages}
    patch.setattr(module, "find_spec", specs.get)


def placed(
    backend: str, groups: str, gpus: tuple[int, ...] = (0, 1)
) -> tuple[list[tuple[str, list[int], int]], list[str]]:
    """The instance groups that come of the configuration, and what is wrong with them."""
    tensors = (
        "input { name: 'i' data_type: TYPE_FP32 dims: 1 } output { name: 'o' data_type: TYPE_FP32 dims: 1 }"
    )
    config = parse_text(f'name: "m" backend: "{backend}" {tensors} {groups}', "m")
    found = placement(config, gpus)
    assert bool(found.gpus) != bool(found.missing)
    normalise(config, found.gpus)
    kinds = config.instance_group[0].Kind
    listed = [(kinds.Name(each.kind), list(each.gpus), each.count) for each in config.instance_group]
    problems = find_problems(config, found.gpus, found.missing)
    return listed, [problem.message for problem in problems if problem.where.startswith("instance_group")]


@pytest.mark.usefixtures("gpu_builds")
@pytest.mark.parametrize("backend", ON_GPUS)
@pytest.mark.parametrize("groups", GROUPS)
def test_instances_go_where_the_configuration_says(backend: str, groups: str) -> None:
    listed, problems = placed(backend, groups)
    expected = GROUPS[groups]
    if expected is None:
        assert len(problems) == 1
    else:
        assert (listed, problems) == (expected, [])


@pytest.mark.parametrize("backend", ON_CPUS)
@pytest.mark.parametrize("gpus", [(), (0, 1)])
def test_backends_for_cpus_stay_there_on_every_machine(backend: str, gpus: tuple[int, ...]) -> None:
    ((kind, placed_on, _),), problems = placed(backend, "", gpus)
    assert (kind, placed_on, problems) == ("KIND_CPU", [], [])
    for group, wrong in (
        ("kind: KIND_GPU", "has kind KIND_GPU but no GPUs are available: "),
        ("gpus: 0", "has kind KIND_CPU but specifies one or more GPUs. None can be used: "),
    ):
        _, (problem,) = placed(backend, f"instance_group {{ {group} }}", gpus)
        assert problem.startswith(f"instance group m_0 of model m {wrong}")
        assert backend in problem


@pytest.mark.parametrize("backend", ON_GPUS)
def test_without_a_gpu_models_run_on_cpus_unless_they_ask_for_one(backend: str) -> None:
    ((kind, gpus, _),), problems = placed(backend, "", ())
    assert (kind, gpus, problems) == ("KIND_CPU", [], [])
    _, problems = placed(backend, "instance_group { kind: KIND_GPU }", ())
    (problem,) = problems
    assert problem == (
        "instance group m_0 of model m has kind KIND_GPU but no GPUs are available: this server sees no NVIDIA GPU "
        "(nvidia-smi lists what the machine has, and CUDA_VISIBLE_DEVICES may hide some of it)"
    )


def test_an_onnxruntime_for_cpus_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, onnxruntime=onnx_files("cpu"))
    ((kind, _, _),), problems = placed("onnxruntime", "")
    assert (kind, problems) == ("KIND_CPU", [])
    _, (problem,) = placed("onnxruntime", "instance_group { gpus: 1 }")
    assert problem.endswith(
        "one or more GPUs. None can be used: the installed onnxruntime 1.32.0 is a build for CPUs; install the package "
        "onnxruntime-gpu in place of onnxruntime"
    )


def test_an_onnxruntime_for_gpus_is_known_by_its_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for build in ("gpu", "windows"):
        install(monkeypatch, tmp_path / build, onnxruntime=onnx_files(build))
        assert placement(ModelConfig(backend="onnxruntime"), (0,)).gpus == (0,)


def test_the_installed_onnxruntime_is_judged_as_it_judges_itself() -> None:
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    found = placement(ModelConfig(backend="onnxruntime"), (0,))
    assert bool(found.gpus) == has_cuda
    assert has_cuda or f"the installed onnxruntime {onnxruntime.__version__} is a build" in found.missing


def test_a_pytorch_for_cpus_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, torch=torch_files("2.13.0+cpu", None))
    ((kind, _, _),), problems = placed("pytorch", "")
    assert (kind, problems) == ("KIND_CPU", [])
    _, (problem,) = placed("pytorch", "instance_group { kind: KIND_GPU }")
    assert problem.endswith("the installed PyTorch 2.13.0+cpu is a build for CPUs; install one for CUDA")


def test_a_framework_that_is_not_installed_is_left_for_its_backend_to_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert placement(ModelConfig(backend="pytorch"), (0,)).gpus == (0,)
    assert placement(ModelConfig(platform="onnxruntime_onnx"), (0,)).gpus == (0,)


def test_every_backend_is_covered_here() -> None:
    assert {*BACKENDS} - {*ON_GPUS} == {*ON_CPUS}
    assert PYTHON in ON_GPUS


ASK = """
import sys
from halimede.backends.placement import placement
from halimede.config.model_config_pb2 import ModelConfig
for backend in ("onnxruntime", "pytorch", "tensorrt", "dali"):
    placement(ModelConfig(backend=backend), (0,))
print({"onnxruntime", "torch", "tensorrt", "nvidia"} & sys.modules.keys())
"""


def test_no_framework_is_imported_to_ask_what_it_was_built_for() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"
