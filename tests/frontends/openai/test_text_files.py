"""Chat templates and tokenizers beside models."""

import json
from pathlib import Path

import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.openai.chat_template import ChatTemplate
from halimede.frontends.openai.text_files import read_text_files
from tests.frontends.openai.models import write_tokenizer

MESSAGES = [{"role": "user", "content": "hi"}]


def template_of(directory: Path, named: str = "") -> str:
    template = read_text_files(directory, 1, named).template
    assert template is not None
    return template.render(MESSAGES)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "repository" / "model"
    (directory / "1").mkdir(parents=True)
    return directory


def write(directory: Path, **config: object) -> None:
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def test_the_version_comes_before_the_model(model: Path) -> None:
    write(model, chat_template="model")
    assert template_of(model) == "model"
    write(
        model / "1",
        chat_template="{{ bos_token }}{{ eos_token }}",
        bos_token="<s>",
        eos_token={"content": "</s>"},
    )
    assert template_of(model) == "<s></s>"
    (model / "1" / "chat_template.jinja").write_text("file")
    assert template_of(model) == "file"


def test_the_default_of_several_templates(model: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "usual"}]
    write(model, chat_template=named)
    assert template_of(model) == "usual"


def test_where_the_arguments_of_vllm_point(model: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    write(weights, chat_template="weights")
    (model / "1" / "model.json").write_text(json.dumps({"model": str(weights)}))
    assert template_of(model) == "weights"


def test_a_named_directory_stays_in_the_repository(model: Path) -> None:
    other = model.parent / "other"
    other.mkdir()
    write(other, chat_template="other")
    write_tokenizer(other / "tokenizer.json")
    assert template_of(model, "../other") == "other"
    tokenizer = read_text_files(model, 1, "../other").tokenizer
    assert tokenizer is not None
    assert tokenizer.count("three small words", True) == 3
    for named, why in (
        ("../../weights", "outside of the model repository"),
        ("none", "there is no directory"),
    ):
        files = read_text_files(model, 1, named)
        assert files.template is None
        assert files.problem is not None
        assert why in files.problem.message


@pytest.mark.parametrize("content", ["{", "{% endif %}"])
def test_malformed_files_are_a_clear_problem(model: Path, content: str) -> None:
    (model / ("tokenizer_config.json" if content == "{" else "chat_template.jinja")).write_text(content)
    problem = read_text_files(model, 1, "").problem
    assert problem is not None
    assert "cannot read" in problem.message or "malformed" in problem.message


def test_templates_run_in_a_sandbox() -> None:
    for source in ("{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ nothing.at.all }}"):
        with pytest.raises(InvalidArgumentError, match="the chat template failed"):
            ChatTemplate(source, {}).render(MESSAGES)


def test_json_in_templates_is_not_escaped_for_html() -> None:
    assert ChatTemplate("{{ messages[0] | tojson }}", {}).render([{"content": "<é>"}]) == '{"content": "<é>"}'
