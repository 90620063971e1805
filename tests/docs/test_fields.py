"""Every field that a configuration may have is on the page that says which are served."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.protobuf import text_format

from halimede.cli.check.command import command
from halimede.config.model_config_pb2 import ModelConfig
from tests.docs.pages import ROOT, section

PAGE = section(ROOT / "docs/model-repository.md", "Every field")
SERVED_TABLE, OTHER_TABLE = PAGE.split("These are not:")

SERVABLE = """
    backend: "identity" max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: 1 }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: 1 }
"""
STEP = """
    platform: "ensemble" max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: 1 }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: 1 }
    ensemble_scheduling { step {
        model_name: "part" model_version: -1
        input_map { key: "INPUT" value: "INPUT" } output_map { key: "OUTPUT" value: "OUTPUT" }
    } }
"""
CONTROL = (
    'control_input {{ name: "{0}" control {{ kind: CONTROL_SEQUENCE_{0} int32_false_true: [ 0, 1 ] }} }}'
)
STATEFUL = f"""
    backend: "implicit_state"
    input {{ name: "INPUT" data_type: TYPE_INT32 dims: 1 }} input {{ name: "TEST_CASE" data_type: TYPE_INT32 dims: 1 }}
    output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }}
    sequence_batching {{
        {" ".join(CONTROL.format(kind) for kind in ("START", "END", "READY"))}
        state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: 1 }}
    }}
"""


def leaves(descriptor: Any, prefix: str = "") -> Iterator[str]:
    """The paths of all fields that hold a value, or nothing, but no further fields. A map is its values."""
    for field in descriptor.fields:
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            message = message.fields_by_name["value"].message_type
        path = f"{prefix}{field.name}"
        if message is None or not message.fields:
            yield path
        else:
            yield from leaves(message, f"{path}.")


def rows(table: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def served() -> list[str]:
    found = []
    for place, fields, *_ in rows(SERVED_TABLE):
        prefix = "" if place == "the model" else f"{place.strip('`')}."
        found += [prefix + name for name in re.findall(r"`([^`]+)`", fields)]
    return found


def others() -> dict[str, str]:
    """Field → what happens; a field stands for all that is in it."""
    return {name: what for names, what, _ in rows(OTHER_TABLE) for name in re.findall(r"`([^`]+)`", names)}


LEAVES = list(leaves(ModelConfig.DESCRIPTOR))


@pytest.mark.parametrize("leaf", LEAVES)
def test_each_field_is_in_one_of_the_tables(leaf: str) -> None:
    elsewhere = [path for path in others() if leaf == path or leaf.startswith(f"{path}.")]
    assert len(elsewhere) + served().count(leaf) == 1


def test_the_tables_have_no_fields_that_there_are_not() -> None:
    known = {leaf[:end] for leaf in LEAVES for end in [*_ends(leaf), len(leaf)]}
    assert set(served()) <= set(LEAVES)
    assert set(others()) <= known


def _ends(path: str) -> list[int]:
    return [match.start() for match in re.finditer(r"\.", path)]


def fill(message: Any) -> None:
    """Give every field of the message a value that is not its default, as far as one excludes no other."""
    for field in message.DESCRIPTOR.fields:
        fill_field(message, field)


def fill_field(message: Any, field: Any) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name["value"]
        if entry.message_type is None:
            getattr(message, field.name)["x"] = "x"
        else:
            fill(getattr(message, field.name)["x"])
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        fill(inner.add() if field.is_repeated else inner)
        if not field.is_repeated:
            inner.SetInParent()
    else:
        value: Any = "x" if field.cpp_type == field.CPPTYPE_STRING else 1
        if field.enum_type is not None:
            value = field.enum_type.values[-1].number
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)


def configuration(path: str) -> ModelConfig:
    """One of a model that loads, but for the field of that path, which is set."""
    text = {"ensemble_scheduling": STEP, "sequence_batching": STATEFUL}.get(path.partition(".")[0], SERVABLE)
    config = text_format.Parse(text, ModelConfig())
    message: Any = config
    *above, last = path.split(".")
    for name in above:
        repeated = message.DESCRIPTOR.fields_by_name[name].is_repeated
        inner = getattr(message, name)
        message = inner if not repeated else (inner[0] if inner else inner.add())
    fill_field(message, message.DESCRIPTOR.fields_by_name[last])
    assert config != text_format.Parse(text, ModelConfig())
    return config


@pytest.mark.parametrize("path", others())
def test_fields_are_refused_or_ignored_as_the_page_says(tmp_path: Path, path: str) -> None:
    for name, config in (("part", SERVABLE), ("m", text_format.MessageToString(configuration(path)))):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(config)
    told = json.loads(CliRunner().invoke(command, ["--format", "json", str(tmp_path)]).output)
    if others()[path] == "refused":
        [problem] = told["problems"]
        assert path.partition(".")[0] in problem["message"]
    else:
        assert "ignored" in others()[path]
        assert told["problems"] == []
