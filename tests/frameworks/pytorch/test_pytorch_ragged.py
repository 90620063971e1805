"""Requests of different shapes in one batch of a PyTorch model, in each form of file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.helpers import Loaded, floats, request, strings
from tests.support.ragged import SEGMENTS, check_segments
from tests.support.server import ServerProcess, start_server

torch = pytest.importorskip("torch", reason="needs PyTorch (torch), which is not installed")

from halimede.core.errors import HalimedeError  # noqa: E402
from tests.frameworks.pytorch import torch_models  # noqa: E402
from tests.frameworks.pytorch.torch_helpers import source_at, source_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

MODULE = """
import torch

class Segments(torch.nn.Module):
    def forward(self, VALUES, ENDS):
        parts = torch.tensor_split(VALUES, ENDS[:-1].to(torch.int64))
        return torch.stack([part.sum() for part in parts]).reshape(-1, 1), VALUES * 2
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("models")
    text = f'backend: "pytorch" {SEGMENTS}'
    torch_models.save_script(repository / "script" / "1" / "model.pt", torch_models.Segments())
    example = [torch.ones(6), torch.ones(3, dtype=torch.int32)]
    torch_models.save_exported(repository / "exported" / "1" / "model.pt2", torch_models.Segments(), example)
    module = repository / "module" / "1" / "model.py"
    module.parent.mkdir(parents=True)
    module.write_text(MODULE)
    for name in ("script", "exported", "module"):
        runtime = 'runtime: "model.py"' if name == "module" else ""
        (repository / name / "config.pbtxt").write_text(f"{text} {runtime}")
    with start_server(repository) as running:
        yield running


@pytest.mark.parametrize("form", ["script", "exported", "module"])
def test_requests_of_different_shapes_share_a_batch(server: ServerProcess, form: str) -> None:
    check_segments(server.http, form)


EXPORTED = 'backend: "pytorch" default_model_filename: "model.pt2"'
SHOUT = """
    backend: "pytorch" max_batch_size: 8
    input { name: "texts" data_type: TYPE_STRING dims: [-1] allow_ragged_batch: true }
    output { name: "loud" data_type: TYPE_STRING dims: [-1] }
    batch_output { target_name: "loud" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "texts" }
"""


def test_ragged_strings_are_joined_and_cut_apart(tmp_path: Path) -> None:
    model = Loaded(source_of(tmp_path, torch_models.Shout(), SHOUT))
    rows = [[b"a", b"b"], [], [b"c"]]
    answers = model.run(*[request({"texts": strings(row)}) for row in rows])
    loud = [[[b"a!", b"b!"]], [[]], [[b"c!"]]]
    assert [answer.outputs["loud"].array.tolist() for answer in answers] == loud


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        (
            "TYPE_INT32",
            "TYPE_FP32",
            "configuration expects datatype TYPE_FP32 for input 'ENDS', model provides TYPE_INT",
        ),
        (
            "ACCUMULATED_ELEMENT_COUNT",
            "ITEM_SHAPE",
            r"batch input 'ENDS' of kind BATCH_ITEM_SHAPE has shape \[-1,1\]",
        ),
        ('target_name: "ENDS"', 'target_name: "END"', "ENDS"),
    ],
)
def test_a_batch_input_that_the_program_does_not_take_is_refused(
    tmp_path: Path, wrong: str, right: str, message: str
) -> None:
    example = [torch.ones(6), torch.ones(3, dtype=torch.int32)]
    torch_models.save_exported(tmp_path / "m" / "1" / "model.pt2", torch_models.Segments(), example)
    text = f"{EXPORTED} {SEGMENTS}".replace(wrong, right)
    with pytest.raises(HalimedeError, match=message):
        Loaded(source_at(tmp_path, text))


def test_an_output_that_is_cut_by_an_inputs_shapes_may_have_any_shape_in_the_program(tmp_path: Path) -> None:
    text = """
        backend: "pytorch" default_model_filename: "model.pt2" max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
        output { name: "pairs" data_type: TYPE_FP32 dims: [-1, 2] }
        batch_output { target_name: "pairs" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }
    """
    torch_models.save_exported(tmp_path / "m" / "1" / "model.pt2", torch_models.Pairs(), [torch.ones(3)])
    model = Loaded(source_at(tmp_path, text))
    answers = model.run(request({"x": floats([1, 2])}), request({"x": floats([3])}))
    pairs = [answer.outputs["pairs"].array.tolist() for answer in answers]
    assert pairs == [[[[1, 1], [2, 2]]], [[[3, 3]]]]
    unlisted = text.replace('output { name: "pairs" data_type: TYPE_FP32 dims: [-1, 2] }', "")
    unlisted = unlisted.replace('"pairs"', '"OUTPUT__0"')
    config = Loaded(source_at(tmp_path, unlisted)).config
    assert [(entry.name, list(entry.dims)) for entry in config.output] == [("OUTPUT__0", [-1, 2])]
