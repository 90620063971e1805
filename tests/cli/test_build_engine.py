"""The command line of `halimede build-engine`; what it builds is tested with the frameworks."""

import re
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from halimede.backends.tensorrt.engine import Bounds
from halimede.cli.build_engine import command
from halimede.cli.engine_shapes import Shapes, parse_shapes, profiles_of

DISORDER = (
    "profile 0: the shapes of 'x' must have as many dimensions each, and sizes must not fall from the least over the "
    "best to the largest"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.touch()
    return path


def refusal(*arguments: Any) -> str:
    """What is wrong with the arguments, in one line."""
    with pytest.raises(click.ClickException) as caught:
        command.main([str(each) for each in arguments], standalone_mode=False)
    message = caught.value.format_message()
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("x:1x3x224x224", {"x": (1, 3, 224, 224)}),
        ("x:8, y:0x10", {"x": (8,), "y": (0, 10)}),
        ("serving:input:0:1x4", {"serving:input:0": (1, 4)}),
        ("'a':2x2,b:scalar", {"a": (2, 2), "b": ()}),
    ],
)
def test_shapes_are_written_as_for_trtexec(text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert parse_shapes(text) == shapes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1x3", "'1x3' is not of the form NAME:1x3x224x224"),
        (":1x3", "':1x3' is not of the form NAME:1x3x224x224"),
        ("x:1x3,", "'' is not of the form NAME:1x3x224x224"),
        ("x:1x-1", "'1x-1', the shape of 'x', is not of the form 1x3x224x224"),
        ("x:1,3", "'3' is not of the form NAME:1x3x224x224"),
        ("x:", "'', the shape of 'x', is not of the form 1x3x224x224"),
        ("x:1,x:2", "'x' has two shapes; to build several optimization profiles, repeat the flag"),
    ],
)
def test_shapes_of_another_form_are_told(text: str, message: str, model: Path) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_shapes(text)
    save = model.with_name("model.plan")
    told = refusal("--onnx", model, "--save-engine", save, "--min-shapes", text)
    assert told == f"--min-shapes: {message}"


def test_each_flag_says_one_thing_of_a_profile() -> None:
    least: list[Shapes]
    best: list[Shapes]
    largest: list[Shapes]
    least, best, largest = (
        [{"x": (1, 2)}, {"x": (4, 2)}],
        [{"x": (2, 2)}, {"x": (6, 2)}],
        [{"x": (2, 4)}, {"x": (8, 2)}],
    )
    assert profiles_of(least, best, largest) == [
        {"x": Bounds((1, 2), (2, 2), (2, 4))},
        {"x": Bounds((4, 2), (6, 2), (8, 2))},
    ]


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        (([], [{"x": (4,)}], []), ((4,), (4,), (4,))),
        (([{"x": (1,)}], [], [{"x": (8,)}]), ((1,), (8,), (8,))),
        (([{"x": (1,)}], [{"x": (4,)}], []), ((1,), (4,), (4,))),
        (([], [], [{"x": (8,)}]), ((8,), (8,), (8,))),
    ],
)
def test_flags_that_are_left_out_follow_the_others(given: Any, bounds: Any) -> None:
    assert profiles_of(*given) == [{"x": Bounds(*bounds)}]


def test_without_shapes_there_is_no_profile() -> None:
    assert profiles_of([], [], []) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ([{"x": (1,)}] * 2, [{"x": (1,)}], [{"x": (1,)}]),
            "--min-shapes, --opt-shapes and --max-shapes must be given once a profile each, got 2, 1 and 1",
        ),
        (
            ([{"x": (1,)}], [{"x": (1,), "y": (1,)}], [{"x": (1,)}]),
            "profile 0: 'y' must be in --min-shapes, --opt-shapes and --max-shapes",
        ),
        (
            ([{"x": (1,)}], [{"x": (9,)}], [{"x": (8,)}]),
            f"{DISORDER}, got [1], [9] and [8]",
        ),
        (
            ([{"x": (1,)}], [{"x": (1, 1)}], [{"x": (1, 1)}]),
            f"{DISORDER}, got [1], [1, 1] and [1, 1]",
        ),
    ],
)
def test_shapes_that_do_not_go_together_are_told(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        profiles_of(*given)


def test_each_format_needs_its_model(model: Path) -> None:
    save = ("--save-engine", model.with_name("out"))
    assert refusal(*save) == "--format=tensorrt needs --onnx"
    assert refusal("--format=aoti", *save) == "--format=aoti needs --program"
    assert refusal("--onnx", model) == "Missing option '--save-engine' / '--saveEngine'."


@pytest.mark.parametrize(
    "flag", ["--fp16", "--min-shapes=x:1", "--workspace=1", "--optimization-level=0", "--timing-cache=f"]
)
def test_flags_for_tensorrt_are_refused_for_aoti(flag: str, model: Path) -> None:
    save = ("--save-engine", model.with_name("out"))
    told = refusal("--format=aoti", "--program", model, *save, flag)
    assert told == f"{flag.partition('=')[0]} is not for --format=aoti"


def test_flags_for_aoti_are_refused_for_tensorrt(model: Path) -> None:
    told = refusal("--onnx", model, "--saveEngine", model.with_name("out"), "--program", model)
    assert told == "--program is not for --format=tensorrt"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--save-engine", "nowhere/model.plan"], "--save-engine: there is no directory 'nowhere'"),
        (["--save-engine", "m.plan", "--device", "first"], "--device: 'first' is not the number of a GPU"),
        (
            ["--save-engine", "m.plan", "--minShapes=x:2", "--maxShapes=x:1"],
            f"{DISORDER}, got [2], [1] and [1]",
        ),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], message: str, model: Path) -> None:
    assert refusal("--onnx", model, *arguments) == message


@pytest.mark.parametrize(
    ("form", "module", "extra"), [("tensorrt", "tensorrt", "tensorrt"), ("aoti", "torch", "pytorch")]
)
def test_a_missing_package_is_named_with_its_extra(
    form: str, module: str, extra: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorrt.cuda_runtime", "tensorrt.builder", "pytorch.aoti_builder"):
        monkeypatch.delitem(sys.modules, f"halimede.backends.{name}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    source = "--program" if form == "aoti" else "--onnx"
    told = refusal(f"--format={form}", source, model, "--save-engine", model.with_name("out"))
    assert told.startswith(f"{module}")
    assert told.endswith(f'is not installed; install it with: pip install "halimede[{extra}]"')
    assert not model.with_name("out").exists()
