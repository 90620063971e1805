import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from halimede.core.errors import InvalidArgumentError
from tests.backends.helpers import floats

torch = pytest.importorskip("torch", reason="needs PyTorch (torch), which is not installed")

from tests.frameworks.pytorch import torch_models  # noqa: E402
from tests.frameworks.pytorch.torch_helpers import ADD_SUB, load  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def test_intra_op_threads_are_those_of_the_server() -> None:
    code = """
import sys
from pathlib import Path
import torch
from halimede.backends.base import BackendOptions
from halimede.backends.pytorch.settings import process
from halimede.config.model_config_pb2 import ModelConfig
first, second = ModelConfig(name="a"), ModelConfig(name="b")
second.parameters["INTRA_OP_THREAD_COUNT"].string_value = "5"
process.set_up(first, BackendOptions(cpu_threads=3))
assert (torch.get_num_threads(), torch.get_num_interop_threads()) == (3, 3)
process.set_up(second, BackendOptions(cpu_threads=3))
assert torch.get_num_threads() == 3
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "INTRA_OP_THREAD_COUNT 5 has no effect" in done.stderr


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("INFERENCE_MODE", "maybe", "parameter 'INFERENCE_MODE' must be one of 'true', 'false'"),
        ("ENABLE_WEIGHT_SHARING", "2", "parameter 'ENABLE_WEIGHT_SHARING' must be one of"),
        ("DISABLE_OPTIMIZED_EXECUTION", "no", "parameter 'DISABLE_OPTIMIZED_EXECUTION' must be one of"),
        ("INTRA_OP_THREAD_COUNT", "0", "'INTRA_OP_THREAD_COUNT' must be an integer of at least 1, got '0'"),
        ("ENABLE_JIT_EXECUTOR", "on", "parameter 'ENABLE_JIT_EXECUTOR' must be one of"),
    ],
)
def test_wrong_parameters_are_refused_by_name(tmp_path: Path, key: str, value: str, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        load(tmp_path, torch_models.AddSub(), ADD_SUB, {"s": "FP32 [2]"}, parameters={key: value})


@pytest.mark.parametrize(
    ("parameters", "inference"),
    [({}, True), ({"INFERENCE_MODE": "false"}, False), ({"DISABLE_OPTIMIZED_EXECUTION": "true"}, True)],
)
def test_runs_are_in_inference_mode_unless_a_parameter_says_otherwise(
    tmp_path: Path, parameters: dict[str, str], inference: bool
) -> None:
    model = load(
        tmp_path, torch_models.Linear(2), {"x": "FP32 [2]"}, {"y": "FP32 [2]"}, parameters=parameters
    )
    seen: list[tuple[bool, bool, bool]] = []
    program = model.instance._program  # type: ignore[attr-defined]  # noqa: SLF001 - that it is shared or freed shows in memory only
    call = program.call

    def spy(values: Any) -> Any:
        optimized = torch._C._get_graph_executor_optimize()  # noqa: SLF001 - PyTorch has no public name for it
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled(), optimized))
        return call(values)

    program.call = spy
    model(x=floats([1, 2]))
    assert seen == [(inference, False, "DISABLE_OPTIMIZED_EXECUTION" not in parameters)]
    assert torch._C._get_graph_executor_optimize()  # noqa: SLF001 - PyTorch has no public name for it


def test_a_parameter_without_effect_is_remarked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "halimede"):
        load(
            tmp_path, torch_models.AddSub(), ADD_SUB, {"s": "FP32 [2]"}, parameters={"ENABLE_NVFUSER": "true"}
        )
    assert "parameter ENABLE_NVFUSER has no effect" in caplog.text
