"""Directories of sentence-transformers and classifiers of transformers, as `halimede init` serves them."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")

import onnx
import openvino
import transformers
import tritonclient.http as triton
from openai import OpenAI
from sentence_transformers import SentenceTransformer

from halimede.config.parse import read_config
from halimede.core.tensors import Array
from halimede.files.text.bert import BertGraph, read_weights
from halimede.files.text.checkpoint import read_text_model
from halimede.files.text.repository import write_text_models
from tests.cli.sagemaker.test_command import planned
from tests.frameworks.text_models.tiny_models import TEXTS, save, save_embedder
from tests.support.server import ServerProcess, run_command, start_server

TOLERANCE = 1e-5
SEARCH = Path(__file__).parents[3] / "examples" / "search" / "search.py"
EMBEDDERS: dict[str, tuple[str, str | tuple[str, ...], dict[str, Any]]] = {
    "mean": ("bert", "mean", {}),
    "cls": ("bert", "cls", {"normalise": False}),
    "max": ("bert", "max", {}),
    "sqrt": ("bert", "mean_sqrt_len_tokens", {"normalise": False}),
    "weighted": ("bert", "weightedmean", {}),
    "last": ("bert", "lasttoken", {}),
    "both": ("roberta", ("cls", "max"), {}),
    "prompted": (
        "roberta",
        "mean",
        {"prompts": {"query": 'the "moon":\n'}, "default_prompt_name": "query"},
    ),
    "mpnet": ("mpnet", ("mean", "max", "lasttoken"), {}),
    "onnx": ("bert", "mean", {}),
    "openvino": ("bert", ("max", "mean"), {}),
}
CLASSIFIERS: dict[str, tuple[str, dict[str, Any]]] = {
    "single": ("bert", {"num_labels": 3}),
    "several": ("roberta", {"num_labels": 3, "problem_type": "multi_label_classification"}),
    "value": ("bert", {"num_labels": 1, "problem_type": "regression"}),
    "distil": ("distilbert", {"num_labels": 3, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}),
}
LABELS = {"id2label": {0: "sad", 1: "neutral", 2: "glad"}}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory a model, as the libraries save them."""
    directory = tmp_path_factory.mktemp("saved")
    for name, (kind, pooling, options) in EMBEDDERS.items():
        save_embedder(kind, directory / name, pooling, **options)
    for name, (kind, settings) in CLASSIFIERS.items():
        labels = LABELS if settings["num_labels"] == 3 else {}
        save(kind, directory / name, "ForSequenceClassification", **settings, **labels)
    export(directory / "onnx")
    (directory / "openvino" / "openvino").mkdir()
    converted = openvino.convert_model(directory / "onnx" / "model.onnx")  # the weights are the same
    openvino.save_model(
        converted, directory / "openvino" / "openvino" / "openvino_model.xml", compress_to_fp16=False
    )
    return directory


def export(directory: Path) -> None:
    """Write `model.onnx` as exporters do, with the states of all tokens and with token types (without effect)."""
    model = read_text_model(directory)
    graph = BertGraph(read_weights(directory / "model.safetensors"), model)
    states = graph.states()
    graph.constant("column", [-1], np.int64)
    graph.constant("nothing", 0, np.float32)
    types = graph.node("Unsqueeze", graph.node("Cast", "token_type_ids", to=onnx.TensorProto.FLOAT), "column")
    answer = graph.node("Add", states, graph.node("Mul", types, "nothing"))
    graph.nodes.append(onnx.helper.make_node("Identity", [answer], ["last_hidden_state"]))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    whole = onnx.helper.make_graph(
        graph.nodes,
        "encoder",
        [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["rows", "tokens"])
            for name in names
        ],
        [
            onnx.helper.make_tensor_value_info(
                "last_hidden_state", onnx.TensorProto.FLOAT, ["rows", "tokens", 32]
            )
        ],
        graph.initializers(),
    )
    opsets = [onnx.helper.make_opsetid("", 20)]  # a later one than that of what is added
    onnx.save(onnx.helper.make_model(whole, opset_imports=opsets, ir_version=9), directory / "model.onnx")


@pytest.fixture(scope="module")
def repository(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    made = run_command("init", str(saved / "mean"), f"--model-repository={directory}", timeout=100)
    assert made.returncode == 0, made.stderr
    for name in (*EMBEDDERS, *CLASSIFIERS):
        if name != "mean":
            write_text_models(directory, name, saved / name)
    return directory


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ServerProcess]:
    with start_server(repository, "--allow-openai=true", "--allow-grpc=false") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.http, concurrency=16, network_timeout=60) as opened:
        yield opened


def asked(texts: list[str], output: str, **options: Any) -> dict[str, Any]:
    """What a client says to send these texts, and to get the output."""
    tensor = triton.InferInput("TEXT", [len(texts), 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text.encode()] for text in texts], np.object_))
    return {"inputs": [tensor], "outputs": [triton.InferRequestedOutput(output, **options)]}


def infer(
    client: triton.InferenceServerClient, model: str, texts: list[str], output: str, **options: Any
) -> Array:
    answer: Array = client.infer(model, **asked(texts, output, **options)).as_numpy(output)
    return answer


@pytest.mark.parametrize("name", EMBEDDERS)
def test_embeddings_are_those_of_sentence_transformers(
    name: str, saved: Path, client: triton.InferenceServerClient
) -> None:
    expected = SentenceTransformer(str(saved / name), device="cpu", backend="torch").encode(TEXTS)
    together = infer(client, name, TEXTS, "EMBEDDING")
    sent = [client.async_infer(name, **asked([text], "EMBEDDING")) for text in TEXTS]
    alone = [each.get_result().as_numpy("EMBEDDING")[0] for each in sent]
    np.testing.assert_allclose(together, expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(np.array(alone), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classes_are_those_of_transformers(
    name: str, saved: Path, client: triton.InferenceServerClient
) -> None:
    pipeline = transformers.pipeline("text-classification", str(saved / name), device="cpu")
    expected = [pipeline(text, top_k=None, truncation=True) for text in TEXTS]
    answers = infer(client, name, TEXTS, "PROBABILITIES")
    ranked = infer(client, name, TEXTS, "PROBABILITIES", class_count=answers.shape[1])
    for scores, classes, wanted in zip(answers, ranked, expected, strict=True):
        by_value = sorted(scores, reverse=True)
        np.testing.assert_allclose(by_value, [each["score"] for each in wanted], rtol=0, atol=TOLERANCE)
        found = [text.decode().split(":")[2] for text in classes]
        assert found == [each["label"] for each in wanted]


@pytest.mark.parametrize(
    ("name", "kind"), [("mean", "sentence-transformers model"), ("single", "text classifier")]
)
def test_archives_of_endpoints_need_no_configuration(
    saved: Path, tmp_path: Path, name: str, kind: str
) -> None:
    shutil.copytree(saved / name, tmp_path / "model")
    plan = planned(tmp_path, {"OPTION_MAX_MODEL_LEN": "64", "HF_MODEL_ID": "/opt/ml/model"})
    [repository] = [flag.partition("=")[2] for flag in plan.flags if flag.startswith("--model-repository=")]
    config = read_config(Path(repository) / "model" / "config.pbtxt")
    assert [step.model_name for step in config.ensemble_scheduling.step] == [
        "model_tokenizer",
        "model_encoder",
    ]
    assert plan.remarks == [
        f"OPTION_MAX_MODEL_LEN has no effect here. The model is a {kind} and generates no text."
    ]


def test_openai_clients_get_embeddings_and_counts_of_tokens(server: ServerProcess, saved: Path) -> None:
    model = SentenceTransformer(str(saved / "mean"), device="cpu")
    with OpenAI(base_url=f"http://{server.http}/v1", api_key="none", max_retries=0, timeout=60) as openai:
        reply = openai.embeddings.create(model="mean", input=TEXTS[:3])
        served = {each.id for each in openai.models.list().data}
    found = [each.embedding for each in reply.data]
    np.testing.assert_allclose(np.array(found), model.encode(TEXTS[:3]), rtol=0, atol=TOLERANCE)
    assert reply.usage.prompt_tokens == sum(
        int(model.tokenize([text])["attention_mask"].sum()) for text in TEXTS[:3]
    )
    assert served == set(EMBEDDERS)


def test_pages_are_searched_by_meaning(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for number, text in enumerate(("The moon walks.", "Wo ist der Bahnhof?", "one two three")):
        (tmp_path / "pages" / f"{number}.md").write_text(f"# Page {number}\n\n{text}\n\n```\ncode\n```\n")
    command = [sys.executable, str(SEARCH), f"--server={server.http}", "--model=mean", "--count=2"]
    command += [
        f"--pages={tmp_path / 'pages'}",
        f"--index={tmp_path / 'index.npz'}",
        "Page 1\nWo ist der Bahnhof?",
    ]
    made = [
        subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        for _ in range(2)
    ]
    assert made[0] == made[1]  # by the index that was kept
    assert made[0].splitlines()[0] == "1.000  1.md#page-1  Page 1"
    assert len(made[0].splitlines()) == 2


def test_batches_are_closed_by_tokens_and_padding_is_counted(
    server: ServerProcess, client: triton.InferenceServerClient
) -> None:
    infer(client, "mean", TEXTS, "EMBEDDING")
    status, metrics = server.get("/metrics", server.metrics)
    assert status == 200
    assert 'halimede_batch_tokens_total{kind="text",model="mean_encoder",version="1"}' in metrics.decode()


def test_frameworks_are_chosen_by_the_files(repository: Path) -> None:
    files = {
        name: sorted(
            {each.name for each in (repository / f"{name}_encoder" / "1").iterdir()} - {"__pycache__"}
        )
        for name in EMBEDDERS
    }
    assert files["mean"] == files["both"] == files["onnx"] == ["model.onnx"]
    assert files["mpnet"] == ["checkpoint", "model.py"]
    assert files["openvino"] == ["model.bin", "model.xml"]
    inputs = onnx.load(repository / "onnx_encoder" / "1" / "model.onnx").graph.input
    assert {each.name for each in inputs} == {"input_ids", "attention_mask", "token_type_ids"}


def test_a_directory_is_served_without_init(saved: Path, tmp_path: Path) -> None:
    with (
        start_server(tmp_path, f"given={saved / 'single'}", "--allow-grpc=false") as running,
        triton.InferenceServerClient(running.http) as client,
    ):
        assert infer(client, "given", TEXTS[:1], "PROBABILITIES").shape == (1, 3)


def test_code_of_a_checkpoint_is_not_run(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "distil", tmp_path / "own")
    file = tmp_path / "own" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "auto_map": {"AutoModel": "own.Model"}}))
    made = run_command("init", str(tmp_path / "own"), f"--model-repository={tmp_path / 'repository'}")
    assert made.returncode == 2
    assert "needs code that comes with the checkpoint (auto_map), which is not run" in " ".join(
        made.stderr.split()
    )
    assert not (tmp_path / "repository").exists()
