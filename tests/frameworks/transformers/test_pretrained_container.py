"""A pretrained model as a container of SageMaker finds it, without a configuration."""

import json
from collections.abc import Iterator
from pathlib import Path

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


def test_its_limits_are_those_of_the_environment(platform: Platform) -> None:
    answer = platform.invoke(json.dumps({"inputs": "one " * 40}))
    assert answer.status == 400
    assert "context holds 32" in answer.document["error"]
