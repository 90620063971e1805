"""The walk-through of BERT, with a checkpoint of two narrow layers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.test_pages import commands
from tests.support.sagemaker import start_serve
from tests.support.server import ServerProcess, start_server
from tests.support.walkthroughs import run_module, without_numbers

pytest.importorskip("torch", reason="needs PyTorch: pip install 'halimede[walkthroughs]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'halimede[walkthroughs]'")
transformers = pytest.importorskip(
    "transformers", reason="needs transformers: pip install 'halimede[walkthroughs]'"
)

from examples.bert.texts import KNOWN, small_tokenizer  # noqa: E402

pytestmark = pytest.mark.timeout(300)  # exporters take long where others use the processors too


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make bert` builds, of a small checkpoint."""
    config = transformers.BertConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    weights = tmp_path_factory.mktemp("checkpoint")
    transformers.BertModel(config).save_pretrained(weights)
    directory = tmp_path_factory.mktemp("bert")
    printed = run_module("examples.bert.build", directory, f"--weights={weights}")
    assert printed.endswith(f"{directory}: answers.npz, archives, models, sagemaker, tokenizer.json")
    return directory


@pytest.fixture(scope="module")
def server(built: Path) -> Iterator[ServerProcess]:
    """What `make bert` starts."""
    with start_server(built / "models") as running:
        yield running


def shown(script: str) -> str:
    """What the page says that the script prints."""
    [output] = [each.output for each in commands("bert.md") if script in each.line]
    return output.rstrip("\n")


def test_texts_of_every_length_are_answered_as_by_pytorch(built: Path, server: ServerProcess) -> None:
    printed = run_module("examples.bert.client", f"--http={server.http}", f"--directory={built}")

    assert without_numbers(printed) == without_numbers(shown("bert.client"))
    counts = re.findall(r"(\d+) requests in (\d+) executions", printed)
    assert [int(requests) for requests, _ in counts] == [8, 8]
    assert all(2 <= int(runs) <= 8 for _, runs in counts)  # texts are padded to two lengths


def test_onnx_model_completes_its_configuration(server: ServerProcess) -> None:
    status, body = server.get("/v2/models/bert_onnx")

    document = json.loads(body)
    assert status == 200
    assert document["inputs"] == [
        {"name": name, "datatype": "INT64", "shape": [-1, -1]} for name in ("attention_mask", "input_ids")
    ]
    assert document["outputs"] == [
        {"name": "last_hidden_state", "datatype": "FP32", "shape": [-1, -1, 32]},
        {"name": "pooler_output", "datatype": "FP32", "shape": [-1, 32]},
    ]


def test_five_copies_are_hosted_in_a_multi_model_container(built: Path) -> None:
    with start_serve(built / "sagemaker", SAGEMAKER_MULTI_MODEL="true") as server:
        printed = run_module(
            "examples.bert.multi_model", f"--sagemaker={server.sagemaker}", f"--directory={built}"
        )

    assert without_numbers(printed) == without_numbers(shown("bert.multi_model"))
    assert not list((built / "sagemaker" / "models").iterdir())


def test_words_of_the_known_texts_are_one_token_and_others_are_spelt() -> None:
    tokenizer = small_tokenizer(KNOWN)

    assert tokenizer.encode("The Moon!").tokens == ["[CLS]", "the", "moon", "!", "[SEP]"]
    assert tokenizer.encode("odd").tokens == ["[CLS]", "o", "##d", "##d", "[SEP]"]
    assert tokenizer.encode("月").tokens == ["[CLS]", "[UNK]", "[SEP]"]
