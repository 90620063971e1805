"""The walk-through of RoBERTa, with a checkpoint of two narrow layers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.examples.test_pages import commands
from tests.support.server import ServerProcess, start_server
from tests.support.walkthroughs import run_module, without_numbers

pytest.importorskip("torch", reason="needs PyTorch: pip install 'halimede[walkthroughs]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'halimede[walkthroughs]'")
transformers = pytest.importorskip(
    "transformers", reason="needs transformers: pip install 'halimede[walkthroughs]'"
)

from examples.roberta_onnx.tokens import tokens  # noqa: E402

pytestmark = pytest.mark.timeout(300)  # exporters take long where others use the processors too


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make roberta-onnx` builds, of a small checkpoint."""
    config = transformers.RobertaConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=514,
        type_vocab_size=1,
    )
    weights = tmp_path_factory.mktemp("checkpoint")
    transformers.RobertaModel(config, add_pooling_layer=False).save_pretrained(weights)
    directory = tmp_path_factory.mktemp("roberta")
    run_module("examples.roberta_onnx.build", directory, f"--weights={weights}")
    return directory


@pytest.fixture(scope="module")
def server(built: Path) -> Iterator[ServerProcess]:
    """What `make roberta-onnx` starts."""
    with start_server(built / "models", "--model-control-mode=explicit") as running:
        yield running


def test_every_configuration_answers_as_pytorch_does(built: Path, server: ServerProcess) -> None:
    printed = run_module("examples.roberta_onnx.client", f"--http={server.http}", f"--directory={built}")

    [shown] = [each.output for each in commands("roberta-onnx.md") if "client" in each.line]
    assert without_numbers(printed) == without_numbers(shown.rstrip("\n"))


def test_all_configurations_share_the_file_of_the_model(built: Path) -> None:
    files = list(built.glob("models/*/1/model.onnx"))

    assert len(files) == 6
    assert len({file.stat().st_ino for file in files}) == 1


def test_memory_has_a_row_for_each_configuration_that_is_asked_for(built: Path) -> None:
    names = ["roberta_default", "roberta_shrinking"]
    header, _, *rows = run_module("examples.roberta_onnx.memory", f"--directory={built}", *names).splitlines()

    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == names
    for row in rows:
        loaded, most, after, *rest = (float(cell) for cell in row.strip("| ").split(" | ")[1:])
        assert len(rest) == header.count("|") - 5
        assert loaded > 10
        assert 10 < after <= most


def test_memory_says_which_server_ended(built: Path) -> None:
    with pytest.raises(AssertionError, match="the server of roberta_missing ended with 1"):
        run_module("examples.roberta_onnx.memory", f"--directory={built}", "roberta_missing")


def test_texts_are_padded_to_the_longest() -> None:
    ids, mask = tokens([b"ab", b""])

    np.testing.assert_array_equal(ids, [[0, 4 + ord("a"), 4 + ord("b"), 2], [0, 2, 1, 1]])
    np.testing.assert_array_equal(mask, [[1, 1, 1, 1], [1, 1, 0, 0]])
