from pathlib import Path

from tests.cli.check.test_command import problems
from tests.support import onnx_models


def write(directory: Path, name: str, *resources: str) -> Path:
    """A model whose instances need resources, one on each line from the third: its configuration."""
    lines = "\n".join(f"resources {{ {each} }}" for each in resources)
    text = f"instance_group {{ kind: KIND_CPU rate_limiter {{\n{lines}\n}} }}"
    onnx_models.write_model(directory, name, onnx_models.identity(), text)
    return directory / name / "config.pbtxt"


def told(directory: Path) -> list[tuple[object, ...]]:
    """Model, text of the line, message and fix of each problem."""
    found: list[tuple[object, ...]] = []
    for each in problems(directory):
        line = each["line"]
        assert isinstance(line, int)
        text = Path(str(each["file"])).read_text().splitlines()[line - 1]
        found.append((each["model"], text, each["message"], each["fix"]))
    return found


def test_sound_declarations_are_no_problem(tmp_path: Path) -> None:
    write(tmp_path, "a", 'name: "R" count: 4', 'name: "G" global: true count: 1')
    write(tmp_path, "b", 'name: "R" count: 2', 'name: "G" global: true count: 9')
    assert problems(tmp_path) == []


def test_resources_without_a_name_or_a_count_are_told(tmp_path: Path) -> None:
    write(tmp_path, "a", "count: 2", 'name: "R"', 'name: "S" count: 0')
    assert told(tmp_path) == [
        ("a", "resources { count: 2 }", "a resource of the rate limiter has no name", 'name: "R1"'),
        (
            "a",
            'resources { name: "R" }',
            "of resource 'R' an instance needs 0, which limits nothing",
            "count: 1",
        ),
        (
            "a",
            'resources { name: "S" count: 0 }',
            "of resource 'S' an instance needs 0, which limits nothing",
            "count: 1",
        ),
    ]


def test_a_negative_count_is_told_where_it_stands(tmp_path: Path) -> None:
    write(tmp_path, "a", 'name: "R" count: -1')
    ((_, line, message, _),) = told(tmp_path)
    assert line == 'resources { name: "R" count: -1 }'
    assert "-1" in str(message)


def test_a_resource_that_is_global_and_of_devices_is_told(tmp_path: Path) -> None:
    write(tmp_path, "a", 'name: "R" global: true count: 1', 'name: "R" count: 1')
    write(tmp_path, "b", 'name: "R" count: 2')
    message = (
        'Resource "R" is present as both global and device-specific resource in the model configuration. In model '
        "'a' it is global"
    )
    assert told(tmp_path) == [
        ("a", 'resources { name: "R" count: 1 }', message, "global: true"),
        ("b", 'resources { name: "R" count: 2 }', message, "global: true"),
    ]
