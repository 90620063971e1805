"""What an engine's builder is told, with a stand-in for TensorRT."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from halimede.cli.build_engine import command
from tests.support.fake_tensorrt import FakeTensor, output
from tests.support.fake_tensorrt_module import FakeTensorRT, Pool, installed

TENSORS = (FakeTensor("x", (-1, 4)), FakeTensor("fixed", (2, 2)), output("y", (-1, 4)))
SHAPES = ("--min-shapes=x:1x4", "--opt-shapes=x:4x4", "--max-shapes=x:8x4")


@pytest.fixture
def tensorrt(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTensorRT]:
    with installed(monkeypatch, TENSORS, ()) as module:
        yield module


def build(directory: Path, *arguments: str) -> Path:
    """The engine's file."""
    onnx, plan = directory / "model.onnx", directory / "model.plan"
    onnx.touch()
    command.main([f"--onnx={onnx}", f"--saveEngine={plan}", *arguments], standalone_mode=False)
    return plan


def refusal(directory: Path, *arguments: str) -> str:
    """What the command says went wrong; it leaves no file."""
    with pytest.raises(click.ClickException) as caught:
        build(directory, *arguments)
    assert [path.name for path in directory.iterdir()] == ["model.onnx"]
    return caught.value.message


def test_an_engine_is_built_as_the_flags_say(
    tensorrt: FakeTensorRT, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    cache.write_bytes(b"earlier")
    flags = ("--fp16", "--int8", "--workspace=512", "--builderOptimizationLevel=5", "--versionCompatible")
    plan = build(tmp_path, *SHAPES, *flags, f"--timing-cache={cache}", "--device=1")
    assert plan.read_bytes() == b"plan"
    assert cache.read_bytes() == b"earlier+measured"
    built = tensorrt.built
    assert built is not None
    assert built.flags == ["FP16", "INT8", "VERSION_COMPATIBLE"]
    assert built.pools == {Pool.WORKSPACE: 512 << 20}
    assert built.builder_optimization_level == 5
    assert [profile.shapes for profile in built.profiles] == [{"x": ((1, 4), (4, 4), (8, 4))}]
    assert tensorrt.cuda.devices == [1]
    assert "engine with 1 optimization profile for GPU 1, in " in capsys.readouterr().out


def test_several_profiles_come_of_repeated_flags(tensorrt: FakeTensorRT, tmp_path: Path) -> None:
    build(
        tmp_path,
        "--optShapes=x:1x4,fixed:2x2",
        "--optShapes=x:9x4",
        "--maxShapes=x:8x4,fixed:2x2",
        "--maxShapes=x:9x4",
    )
    assert tensorrt.built is not None
    assert [profile.shapes for profile in tensorrt.built.profiles] == [
        {"x": ((1, 4), (1, 4), (8, 4)), "fixed": ((2, 2), (2, 2), (2, 2))},
        {"x": ((9, 4), (9, 4), (9, 4))},
    ]


def test_values_of_shape_tensors_are_given_as_shapes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes = FakeTensor("sizes", (2,), "INT64", is_shape=True)
    with installed(monkeypatch, [FakeTensor("x", (2, 2)), sizes, output("y", (-1, -1))], ()) as tensorrt:
        build(tmp_path, "--minShapes=sizes:1x1", "--maxShapes=sizes:4x4")
        assert tensorrt.built is not None
        assert tensorrt.built.profiles[0].values == {"sizes": ((1, 1), (4, 4), (4, 4))}


@pytest.mark.usefixtures("tensorrt")
def test_an_input_without_its_shapes_is_told_with_the_flags_to_give(tmp_path: Path) -> None:
    message = (
        "input 'x' has the shape [-1, 4], so every profile needs its least, best and largest one: say, for example, "
        "--min-shapes=x:1x4 --opt-shapes=x:1x4 --max-shapes=x:1x4"
    )
    assert refusal(tmp_path) == message
    assert refusal(tmp_path, "--optShapes=fixed:2x2") == message


@pytest.mark.usefixtures("tensorrt")
def test_shapes_that_are_not_the_models_are_told(tmp_path: Path) -> None:
    assert refusal(tmp_path, "--optShapes=z:1x4") == (
        "there is no input 'z' in the ONNX file; its inputs are 'x' [-1, 4], 'fixed' [2, 2]"
    )
    assert refusal(tmp_path, "--optShapes=x:1x4x4").startswith(
        "input 'x' has the shape [-1, 4] in the ONNX file, which does not go with [1, 4, 4], [1, 4, 4] and [1, 4, 4]"
    )


def parse_error(node: str) -> Any:
    return SimpleNamespace(
        desc=lambda: "no importer for the operator", node_name=lambda: node, node_operator=lambda: "Warp"
    )


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([parse_error("warp_1")], "no importer for the operator (node 'warp_1', Warp)"),
        ([parse_error("")] * 5, "; ".join(["no importer for the operator"] * 3)),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_the_parsers_words(
    errors: Sequence[Any], told: str, tensorrt: FakeTensorRT, tmp_path: Path
) -> None:
    tensorrt.parse_errors = list(errors)
    assert refusal(tmp_path, *SHAPES) == f"TensorRT cannot read {tmp_path / 'model.onnx'}: {told}"


def test_what_tensorrt_says_of_a_failed_build_is_told(tensorrt: FakeTensorRT, tmp_path: Path) -> None:
    tensorrt.buildable = False
    assert refusal(tmp_path, *SHAPES) == (
        f"TensorRT 10.9.0 cannot build an engine of {tmp_path / 'model.onnx'}: no tactic fits the workspace"
    )


def test_a_machine_without_a_gpu_is_told(tensorrt: FakeTensorRT, tmp_path: Path) -> None:
    tensorrt.has_gpu = False
    start = "TensorRT 10.9.0 cannot start: it needs an NVIDIA GPU and its driver"
    assert refusal(tmp_path, *SHAPES) == f"{start}: CUDA initialization failure with error: 35"


@pytest.mark.usefixtures("tensorrt")
def test_a_timing_cache_of_another_gpu_is_told(tmp_path: Path) -> None:
    cache = tmp_path.parent / f"{tmp_path.name}-cache"
    cache.write_bytes(b"foreign")
    assert refusal(tmp_path, *SHAPES, f"--timingCacheFile={cache}") == (
        "TensorRT 10.9.0 cannot use the timing cache, which may be from another GPU or version; remove it"
    )
    assert cache.read_bytes() == b"foreign"


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_tensorrt_11_takes_precisions_from_the_file(
    precision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with installed(monkeypatch, TENSORS, (), "11.4.0"):
        assert refusal(tmp_path, *SHAPES, f"--{precision}") == (
            f"TensorRT 11.4.0 has no switch for {precision.upper()}: its engines compute in the datatypes that the "
            f"ONNX file has. Convert the file, or use TensorRT 10"
        )
        build(tmp_path, *SHAPES)
