import json
from pathlib import Path

from tests.cli.check.test_command import problems
from tests.support import onnx_models
from tests.support.commands import call_text_command


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


def test_a_resource_of_which_there_is_too_little_is_told_with_what_there_is(tmp_path: Path) -> None:
    write(tmp_path, "a", 'name: "R" count: 4', 'name: "G" global: true count: 2')
    write(tmp_path, "b", 'name: "S" count: 1')
    command = [
        "check",
        str(tmp_path),
        "--format=json",
        "--rate-limit-resource=R:3",
        "--rate-limit-resource=G:2:7",
    ]
    result = call_text_command(*command)
    assert result.returncode == 1, result.stderr
    found = [(each["model"], each["message"], each["fix"]) for each in json.loads(result.stdout)["problems"]]
    words = "which will prevent scheduling of one or more model instances, the minimum required count is"
    assert found == [
        ("a", f'Resource count for "R" is limited to 3 {words} 4', "count: 3"),
        ("b", f'Resource count for "S" is limited to 0 {words} 1', "--rate-limit-resource=S:1"),
    ]
    path = tmp_path / "a" / "config.pbtxt"
    path.write_text(path.read_text().replace("count: 4", "count: 3"))
    result = call_text_command(*command, "--rate-limit-resource=S:1")
    assert result.returncode == 0, result.stdout


def test_a_resource_of_another_form_is_a_wrong_use(tmp_path: Path) -> None:
    write(tmp_path, "a")
    result = call_text_command("check", str(tmp_path), "--rate-limit-resource=R")
    assert result.returncode == 2
    assert "'<resource_name>:<count>'. Got R" in result.stderr
