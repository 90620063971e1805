"""What the files of a text model say, and what is said of those that cannot be served."""

import json
from pathlib import Path
from typing import Any

import pytest

from halimede.files.directories import link_model
from halimede.files.targets import TargetError
from halimede.files.text.checkpoint import Scores, TextModel, is_text_model, read_text_model

CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
CLASSIFIER = {
    **CONFIG,
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"1": "good", "0": "bad"},
}
ROBERTA = {**CLASSIFIER, "model_type": "roberta", "pad_token_id": 1}
MODULES = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]
NORMALIZE = {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}
EMBEDDER: dict[str, Any] = {
    "config.json": CONFIG,
    "tokenizer.json": {},
    "modules.json": MODULES,
    "1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
}


def written(directory: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


def read(directory: Path, **files: Any) -> TextModel:
    """What an embedder says with other files; None removes one."""
    named = {name.replace("__", "/").replace("_json", ".json"): content for name, content in files.items()}
    both = {**EMBEDDER, **named}
    written(directory, {name: content for name, content in both.items() if content is not None})
    assert is_text_model(directory)
    return read_text_model(directory)


def test_embedder(tmp_path: Path) -> None:
    model = read(tmp_path)
    assert (model.pooling, model.normalise, model.max_tokens, model.labels) == (("cls",), False, 64, ())


def test_settings_of_sentence_transformers(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        modules_json=[*MODULES, NORMALIZE],
        sentence_bert_config_json={"max_seq_length": 16, "do_lower_case": True},
        config_sentence_transformers_json={"prompts": {"query": "query: "}, "default_prompt_name": "query"},
        **{"1_Pooling__config_json": {"pooling_mode": ["mean", "max"]}},
    )
    assert (model.pooling, model.normalise, model.max_tokens) == (("mean", "max"), True, 16)
    assert (model.lower_case, model.prefix) == (True, "query: ")


def test_classifier(tmp_path: Path) -> None:
    model = read_text_model(written(tmp_path, {"config.json": CLASSIFIER, "tokenizer.json": {}}))
    assert (model.labels, model.scores, model.max_tokens) == (("bad", "good"), Scores.SOFTMAX, 64)


@pytest.mark.parametrize(
    ("more", "scores"),
    [
        ({"problem_type": "multi_label_classification"}, Scores.SIGMOID),
        ({"problem_type": "regression"}, Scores.LOGITS),
        ({"id2label": {"0": "yes"}}, Scores.SIGMOID),
    ],
)
def test_scores_are_those_of_the_pipeline(tmp_path: Path, more: dict[str, Any], scores: Scores) -> None:
    files = {"config.json": {**CLASSIFIER, **more}, "tokenizer.json": {}}
    assert read_text_model(written(tmp_path, files)).scores is scores


def test_positions_of_roberta_begin_after_those_of_padding(tmp_path: Path) -> None:
    files = {
        "config.json": ROBERTA,
        "tokenizer.json": {},
        "tokenizer_config.json": {"model_max_length": 1e30},
    }
    assert read_text_model(written(tmp_path, files)).max_tokens == 62


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_json": None}, "has no tokenizer.json; write it with transformers.AutoTokenizer"),
        ({"1_Pooling__config_json": None}, "1_Pooling/config.json' is missing; the whole directory"),
        (
            {"1_Pooling__config_json": {"pooling_mode": "attention"}},
            "asks for pooling 'attention'; known are cls, max",
        ),
        (
            {"1_Pooling__config_json": {"pooling_mode_best_token": True}},
            "asks for pooling 'pooling_mode_best_token'; known are",
        ),
        ({"1_Pooling__config_json": {"include_prompt": False}}, "leaves the prompt out of pooling"),
        ({"config_json": "{"}, "config.json' cannot be read as JSON"),
        ({"config_json": "[]"}, "config.json' must be a JSON object"),
        ({"modules_json": [1]}, "modules.json' must be a JSON list of objects"),
        (
            {"modules_json": [*MODULES, {"type": "own.Dense"}]},
            "module 2 is 'own.Dense'; what can be served is",
        ),
        ({"modules_json": MODULES[:1]}, "has Transformer; needed are a Transformer, then a Pooling"),
    ],
)
def test_what_cannot_be_served(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError) as caught:
        read(tmp_path, **files)
    assert message in str(caught.value)


@pytest.mark.parametrize("config", ["{", "[]", '{"architectures": ["BertModel"]}', '{"architectures": 1}'])
def test_other_directories_are_no_text_models(tmp_path: Path, config: str) -> None:
    assert not is_text_model(tmp_path)
    assert not is_text_model(written(tmp_path, {"config.json": config}))


def test_missing_weights_are_told(tmp_path: Path) -> None:
    given = written(tmp_path / "given", {"config.json": CLASSIFIER, "tokenizer.json": {}})
    with pytest.raises(TargetError, match=r"has neither model\.onnx nor openvino_model\.xml nor weights"):
        link_model(tmp_path, "m", given)


def test_weights_that_are_no_safetensors_are_told(tmp_path: Path) -> None:
    config = {**CLASSIFIER, "hidden_act": "gelu"}
    given = written(
        tmp_path / "given",
        {"config.json": config, "tokenizer.json": {}, "model.safetensors": "version https"},
    )
    with pytest.raises(TargetError, match=r"model\.safetensors' cannot be read"):
        link_model(tmp_path, "m", given)


def test_file_that_is_no_onnx_model_is_told(tmp_path: Path) -> None:
    given = written(
        tmp_path / "given", {"config.json": CLASSIFIER, "tokenizer.json": {}, "model.onnx": "version https"}
    )
    with pytest.raises(TargetError, match=r"model\.onnx' is no ONNX model"):
        link_model(tmp_path, "m", given)
