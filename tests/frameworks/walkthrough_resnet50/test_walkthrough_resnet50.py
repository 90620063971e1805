"""The walk-through of ResNet-50, with fewer channels and layers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.examples.test_pages import commands
from tests.support.server import ServerProcess, start_server
from tests.support.walkthroughs import run_module, without_numbers

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'halimede[walkthroughs]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'halimede[walkthroughs]'")

from examples.resnet50.build import load  # noqa: E402
from examples.resnet50.network import ResNet50  # noqa: E402

pytestmark = pytest.mark.timeout(300)  # exporters take long where others use the processors too

FORMATS = ("export", "onnx", "torchscript")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make resnet50` builds."""
    directory = tmp_path_factory.mktemp("resnet50")
    printed = run_module("examples.resnet50.build", directory, "--small")
    assert printed == f"{directory}/models: resnet50_export, resnet50_onnx, resnet50_torchscript"
    return directory


@pytest.fixture(scope="module")
def server(built: Path) -> Iterator[ServerProcess]:
    """What `make resnet50` starts."""
    with start_server(built / "models", "--model-control-mode=explicit", "--load-model=*") as running:
        yield running


def test_every_format_answers_as_pytorch_does(built: Path, server: ServerProcess) -> None:
    printed = run_module("examples.resnet50.client", f"--http={server.http}", f"--directory={built}")

    [shown] = [each.output for each in commands("resnet50.md") if "resnet50.client" in each.line]
    assert without_numbers(printed) == without_numbers(shown.rstrip("\n"))


def test_scores_that_are_not_pytorchs_are_an_error(
    built: Path, server: ServerProcess, tmp_path: Path
) -> None:
    answer = np.load(built / "answer.npz")
    np.savez(tmp_path / "answer.npz", image=answer["image"], scores=answer["scores"] + 1)

    with pytest.raises(AssertionError, match=r"wrong answer: it is 1.0e\+00 from the framework's"):
        run_module("examples.resnet50.client", f"--http={server.http}", f"--directory={tmp_path}")


def test_server_without_the_models_is_an_error(built: Path, tmp_path: Path) -> None:
    with (
        start_server(tmp_path) as empty,
        pytest.raises(AssertionError, match=r"the server has no model resnet50_\* that is ready"),
    ):
        run_module("examples.resnet50.client", f"--http={empty.http}", f"--directory={built}")


def test_comparison_has_a_row_for_each_format_and_one_for_its_framework(
    built: Path, server: ServerProcess
) -> None:
    arguments = f"--http={server.http}", f"--directory={built}", "--seconds=0.05", "--cold-starts=1"
    header, _, *rows = run_module("examples.resnet50.compare", *arguments).splitlines()

    names = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    assert names == [
        name for each in FORMATS for name in (f"resnet50_{each}, served", f"{each} in its framework")
    ]
    for row in rows:
        figures = [float(cell) for cell in row.strip("| ").split(" | ")[1:]]
        assert len(figures) == header.count("|") - 2
        assert all(p50 <= p95 for p50, p95 in (figures[2:4], figures[4:6]))
    assert server.get("/v2/models/resnet50_onnx/ready")[0] == 200


def test_weights_have_the_names_and_shapes_that_torchvision_gives_them(tmp_path: Path) -> None:
    network = ResNet50()
    state = network.state_dict()

    # what torchvision says of its ResNet-50
    assert sum(each.numel() for each in network.parameters()) == 25_557_032
    assert len(state) == 320
    assert state["layer4.0.downsample.1.running_var"].shape == (2048,)
    assert state["layer2.0.conv2.weight"].shape == (128, 128, 3, 3)
    assert state["fc.weight"].shape == (1000, 2048)

    torch.save(state, tmp_path / "weights.pth")
    loaded = load(tmp_path / "weights.pth")
    assert not loaded.training
    assert torch.equal(loaded.fc.weight, network.fc.weight)
