"""A pretrained model as a container of SageMaker finds it, without a configuration."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.transformers.tiny_models import make, tokenizer
from tests.support.sagemaker import Platform, start_serve


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("ml")
    make("llama").save_pretrained(base / "model")
    tokenizer().save_pretrained(base / "model")
    (base / "model" / "serving.properties").write_text("engine=Python\noption.max_rolling_batch_size=2\n")
    return base


@pytest.fixture(scope="module")
def platform(base: Path) -> Iterator[Platform]:
    with start_serve(base, HF_MODEL_ID="/opt/ml/model", OPTION_MAX_MODEL_LEN="32") as server:
        yield Platform(server)


def test_it_writes(platform: Platform) -> None:
    answer = platform.invoke(
        json.dumps({"inputs": "one two", "parameters": {"max_new_tokens": 4, "details": True}})
    )
    assert answer.status == 200, answer.body
    assert answer.document["details"]["generated_tokens"] <= 4
    chat = {"messages": [{"role": "user", "content": "one"}], "max_tokens": 3, "stream": True}
    events = platform.invoke(json.dumps(chat)).body
    assert events.endswith(b"data: [DONE]\n\n")
    assert b'"model":"model"' in events


@pytest.fixture(scope="module")
def tgi(base: Path) -> Iterator[Platform]:
    environment = {"HF_MODEL_ID": "/opt/ml/model", "OPTION_TGI_COMPAT": "true"}
    with start_serve(base, **environment) as server:
        yield Platform(server)


def details_of(platform: Platform, **parameters: Any) -> Any:
    """The details of a text, and the text."""
    body = {"inputs": "one two", "parameters": {"max_new_tokens": 20, "details": True, **parameters}}
    answer = platform.invoke(json.dumps(body))
    assert answer.status == 200, answer.body
    found = answer.document[0] if isinstance(answer.document, list) else answer.document
    return found["details"], found["generated_text"]


def test_a_stop_word_is_told_from_the_end_of_the_text(platform: Platform, tgi: Platform) -> None:
    for each in (platform, tgi):
        told, text = details_of(each)
        assert told["finish_reason"] in ("length", "eos_token")
        word = text[1:3]
        told, _ = details_of(each, stop=[word])
        assert told["finish_reason"] == "stop_sequence"


def test_the_tokens_of_a_text_are_told(platform: Platform, tgi: Platform) -> None:
    told, text = details_of(tgi, max_new_tokens=4)
    assert len(told["tokens"]) == told["generated_tokens"] <= 4
    shown = [token for token in told["tokens"] if not token["special"]]
    assert tokenizer().decode([token["id"] for token in shown]) == text
    assert all(token["logprob"] < 0 for token in told["tokens"])
    assert set(told["tokens"][0]) == {"id", "text", "logprob", "special"}
    [letter] = tokenizer().encode("x", add_special_tokens=False)
    bias = {str(letter): 100}
    told, text = details_of(platform, max_new_tokens=4, logit_bias=bias)
    assert [set(token) for token in told["tokens"]] == [{"id", "text", "log_prob"}] * told["generated_tokens"]
    parameters = {"max_new_tokens": 4, "details": True, "logit_bias": bias}
    body = {"inputs": "one two", "parameters": parameters, "stream": True}
    lines = [json.loads(line) for line in platform.invoke(json.dumps(body)).body.splitlines()]
    assert [line["token"]["id"] for line in lines] == [letter] * 4


def test_its_limits_are_those_of_the_environment(platform: Platform) -> None:
    answer = platform.invoke(json.dumps({"inputs": "one " * 40}))
    assert answer.status == 400
    assert "context holds 32" in answer.document["error"]
