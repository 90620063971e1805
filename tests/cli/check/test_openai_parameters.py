"""Parameters for OpenAI's API that are wrong: the server's log names them, and `halimede check` does so before."""

from pathlib import Path

import pytest

from tests.cli.check.test_command import check, problems
from tests.support import onnx_models

TENSORS = """backend: "identity"
input { name: "INPUT0" data_type: TYPE_STRING dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_STRING dims: 1 }
"""


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'


def write(directory: Path, *parameters: str) -> Path:
    """The configuration of a model with one text in and one out."""
    return onnx_models.write_model(directory, "m", None, TENSORS + "".join(parameters)) / "config.pbtxt"


def test_right_parameters_are_no_problem(tmp_path: Path) -> None:
    write(tmp_path, parameter("openai.task", "completions"), parameter("openai.max_tokens", "9"))
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("openai.task", "chatter", "is 'chatter'; it must be one or more of chat, completions, embeddings"),
        ("openai.input", "INPUT1", "names 'INPUT1', which is no input of TYPE_STRING"),
        ("openai.output", "OUTPUT1", "must name an output of TYPE_STRING; the model has: OUTPUT0"),
        ("openai.input.colour", "INPUT0", "names no field; known are "),
        ("openai.output.finish_reason", "END", "names 'END', but the model has only: OUTPUT0"),
        ("openai.max_tokens", "many", "is 'many'; it must be a whole number above 0"),
        ("openai.tasks", "chat", "is not known"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_line(tmp_path: Path, key: str, value: str, message: str) -> None:
    parameters = {key: value, "openai.task": value if key == "openai.task" else "completions"}
    file = write(tmp_path, *(parameter(*each) for each in parameters.items()))
    (found,) = problems(tmp_path)
    assert str(found["message"]).startswith(f"model 'm': the parameter {key} of its configuration {message}")
    assert (found["file"], found["line"]) == (str(file), 4)
    assert found["field"] == f'parameters["{key}"].string_value'


def test_a_parameter_without_a_task_is_a_problem(tmp_path: Path) -> None:
    file = write(tmp_path, parameter("openai.max_tokens", "9"))
    code, output = check(tmp_path)
    assert code == 1
    assert output == (
        f"{file}:4: model 'm': the parameter openai.max_tokens of its configuration needs the parameter openai.task "
        'beside it [parameters["openai.max_tokens"].string_value]\n'
        "1 problem in 1 of 1 model\n"
    )
