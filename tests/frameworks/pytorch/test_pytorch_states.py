"""PyTorch models whose sequences have states and control inputs."""

from pathlib import Path

import pytest
import torch

from tests.backends.helpers import Loaded
from tests.backends.sequences import ACCUMULATOR, check_accumulator
from tests.frameworks.pytorch.torch_helpers import source_at, source_of

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

TENSORS = """
    backend: "pytorch"
    max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
"""


class Accumulator(torch.nn.Module):
    """The sum of a sequence, as output and as state."""

    def forward(
        self,
        INPUT: torch.Tensor,  # noqa: N803 - names of the model's inputs
        START: torch.Tensor,  # noqa: N803
        SUM_IN: torch.Tensor,  # noqa: N803
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = INPUT + (1 - START) * SUM_IN
        return total * 1, total


class InPlaceAccumulator(torch.nn.Module):
    """The same, written into the state."""

    def forward(
        self,
        INPUT: torch.Tensor,  # noqa: N803 - names of the model's inputs
        START: torch.Tensor,  # noqa: N803
        SUM_IN: torch.Tensor,  # noqa: N803
    ) -> tuple[torch.Tensor, torch.Tensor]:
        SUM_IN.mul_(1 - START).add_(INPUT)
        return SUM_IN * 1, SUM_IN


@pytest.mark.parametrize("module", [Accumulator(), InPlaceAccumulator()], ids=["new", "in place"])
def test_states_and_controls_of_torchscript(tmp_path: Path, module: torch.nn.Module) -> None:
    check_accumulator(Loaded(source_of(tmp_path, module, TENSORS + ACCUMULATOR)))


def test_names_that_end_with_the_position(tmp_path: Path) -> None:
    text = (TENSORS + ACCUMULATOR).replace('"INPUT"', '"INPUT__0"').replace('"START"', '"START__1"')
    text = text.replace('"SUM_IN"', '"SUM_IN__2"').replace('"OUTPUT"', '"OUTPUT__0"')
    text = text.replace('"SUM_OUT"', '"SUM_OUT__1"')
    model = Loaded(source_of(tmp_path, Accumulator(), text))
    check_accumulator(model, {"INPUT": "INPUT__0", "START": "START__1", "OUTPUT": "OUTPUT__0"})


@pytest.mark.parametrize("module", [Accumulator(), InPlaceAccumulator()], ids=["new", "in place"])
def test_states_and_controls_of_an_exported_program_are_not_completed(
    tmp_path: Path, module: torch.nn.Module
) -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(
        module,
        (torch.zeros(2, 2), torch.zeros(2, 1), torch.zeros(2, 2)),
        dynamic_shapes=({0: rows}, {0: rows}, {0: rows}),
    )
    path = tmp_path / "m" / "1" / "model.pt2"
    path.parent.mkdir(parents=True)
    torch.export.save(program, str(path))
    text = ACCUMULATOR.replace("SUM_OUT", "OUTPUT__1")
    text += 'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2 ] }'
    check_accumulator(Loaded(source_at(tmp_path, 'platform: "torch_aoti"' + text)), {"OUTPUT": "OUTPUT__0"})


def test_states_and_controls_of_a_module(tmp_path: Path) -> None:
    code = """
import torch

class Accumulator(torch.nn.Module):
    def forward(self, INPUT, START, SUM_IN):
        total = INPUT + (1 - START) * SUM_IN
        return {"OUTPUT": total * 1, "SUM_OUT": total}
"""
    path = tmp_path / "m" / "1" / "model.py"
    path.parent.mkdir(parents=True)
    path.write_text(code)
    check_accumulator(Loaded(source_at(tmp_path, 'runtime: "model.py"' + TENSORS + ACCUMULATOR)))
