"""What is decided from an engine's own description: configuration, profiles, refusals."""

from typing import Any

import pytest

from halimede.backends.ports import check, complete
from halimede.backends.tensorrt.engine import EngineDescription, describe
from halimede.backends.tensorrt.profiles import (
    all_profiles,
    check_batch,
    check_shape_tensors,
    group_profiles,
    largest_batch,
    pick,
    ports_of,
)
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import parse_text
from halimede.core.datatypes import FP16, FP32, INT32
from halimede.core.errors import HalimedeError, InvalidArgumentError
from tests.support.fake_tensorrt import FakeEngine, FakeTensor, output

IMAGES = FakeEngine(
    [
        FakeTensor("images", (-1, 3, -1, -1)),
        FakeTensor("scale", (-1, 1), "HALF"),
        output("scores", (-1, 10)),
    ],
    [
        {"images": [(1, 3, 32, 32), (4, 3, 64, 64), (8, 3, 64, 64)], "scale": [(1, 1), (4, 1), (8, 1)]},
        {"images": [(1, 3, 64, 64), (16, 3, 64, 64), (32, 3, 128, 128)], "scale": [(1, 1), (16, 1), (32, 1)]},
    ],
)
FIXED = FakeEngine([FakeTensor("x", (2, 4)), output("y", (2, 4))], [{}])
RESHAPE = FakeEngine(
    [
        FakeTensor("x", (-1, 4)),
        FakeTensor("sizes", (2,), "INT32", location="HOST", is_shape=True),
        output("y", (-1, -1)),
    ],
    [{"x": [(1, 4), (2, 4), (8, 4)]}],
    [{"sizes": [(1, 1), (2, 4), (8, 32)]}],
)


def config_of(text: str = "") -> ModelConfig:
    return parse_text(f'name: "m" backend: "tensorrt" {text}', "test")


def completed(engine: FakeEngine, text: str = "") -> ModelConfig:
    """The configuration as the backend completes and checks it."""
    config, description = config_of(text), describe(engine)
    profiles = all_profiles(config, description.profiles)
    if config.max_batch_size == 0 and not (config.input and config.output):
        config.max_batch_size = largest_batch(description, profiles)
    complete(config, ports_of(description), {})
    check_batch(config, description, profiles)
    check_shape_tensors(config, description)
    check(config, ports_of(description))
    return config


def test_an_engine_is_described_with_its_profiles() -> None:
    engine: EngineDescription = describe(RESHAPE)
    assert [(tensor.name, tensor.datatype, tensor.shape, tensor.on_host) for tensor in engine.inputs] == [
        ("x", FP32, (-1, 4), False),
        ("sizes", INT32, (2,), True),
    ]
    assert [tensor.name for tensor in engine.outputs] == ["y"]
    (profile,) = engine.profiles
    assert profile.shapes["x"].largest == (8, 4)
    assert profile.values["sizes"].best == (2, 4)
    assert [tensor.datatype for tensor in describe(IMAGES).inputs] == [FP32, FP16]


def test_everything_is_completed_from_the_first_profile() -> None:
    assert completed(IMAGES) == config_of(
        """max_batch_size: 8 dynamic_batching { }
        input { name: "images" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] }
        input { name: "scale" data_type: TYPE_FP16 dims: [ 1 ] }
        output { name: "scores" data_type: TYPE_FP32 dims: [ 10 ] }"""
    )


def test_the_profiles_of_instance_groups_decide_the_batch_size() -> None:
    groups = 'instance_group { name: "a" profile: "1" } instance_group { name: "b" profile: "0" }'
    assert completed(IMAGES, groups).max_batch_size == 32
    assert completed(IMAGES, 'instance_group { name: "a" profile: "1" }').max_batch_size == 32


def test_an_engine_for_one_batch_size_does_not_batch() -> None:
    config = completed(FIXED)
    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [2, 4]
    with pytest.raises(HalimedeError, match="model does not support batching while non-zero max_batch_size"):
        completed(FIXED, "max_batch_size: 2")


def test_a_smaller_batch_size_is_kept_and_a_larger_one_refused() -> None:
    assert completed(IMAGES, "max_batch_size: 6").max_batch_size == 6
    with pytest.raises(InvalidArgumentError) as caught:
        completed(IMAGES, "max_batch_size: 9")
    assert caught.value.message == (
        "unable to load model 'm': configuration specified max_batch_size 9, but the engine's optimization profiles "
        "take 8 rows at most; set max_batch_size: 8, or build the engine for more"
    )


def test_engines_with_shape_tensors_do_not_batch() -> None:
    config = completed(RESHAPE)
    assert config.max_batch_size == 0
    with pytest.raises(HalimedeError, match="does not support batching"):
        completed(RESHAPE, "max_batch_size: 4")
    config.max_batch_size = 4
    with pytest.raises(
        InvalidArgumentError, match="input 'sizes' is a shape tensor, whose values hold for a whole"
    ):
        check_batch(config, describe(RESHAPE), describe(RESHAPE).profiles)


def test_what_is_no_shape_tensor_cannot_be_marked_as_one() -> None:
    config = completed(FIXED)
    config.input[0].is_shape_tensor = True
    with pytest.raises(
        InvalidArgumentError, match=r"input 'x' is marked as a shape tensor \(is_shape_tensor\)"
    ):
        check_shape_tensors(config, describe(FIXED))


@pytest.mark.parametrize("text", ["2", "-1", "one", ""])
def test_a_profile_that_is_not_there_is_named_with_those_that_are(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        completed(IMAGES, f'instance_group {{ name: "a" profile: "{text}" }}')
    assert caught.value.message == (
        f"unable to load model 'm': instance group 'a' names the optimization profile '{text}'; the engine has the "
        f"profiles 0, 1"
    )


def test_a_group_without_profiles_uses_the_first() -> None:
    profiles = describe(IMAGES).profiles
    config = config_of('instance_group { name: "a" } instance_group { name: "b" profile: ["1", "0"] }')
    assert [each.index for each in group_profiles(config, "a", profiles)] == [0]
    assert [each.index for each in group_profiles(config, "b", profiles)] == [1, 0]


@pytest.mark.parametrize(
    ("shape", "index"),
    [((1, 3, 64, 64), 0), ((8, 3, 64, 64), 0), ((9, 3, 64, 64), 1), ((2, 3, 32, 32), 0), ((1, 3, 99, 64), 1)],
)
def test_a_batch_runs_in_the_profile_made_for_the_nearest_shapes(shape: tuple[int, ...], index: int) -> None:
    profiles = describe(IMAGES).profiles
    assert pick(profiles, {"images": shape, "scale": (shape[0], 1)}, {}).index == index


@pytest.mark.parametrize(
    ("shapes", "values", "text"),
    [
        ({"x": (9, 4)}, {"sizes": (2, 2)}, "input 'x' has shape [9, 4], but"),
        ({"x": (1, 4, 1)}, {"sizes": (2, 2)}, "input 'x' has shape [1, 4, 1], but"),
        ({"x": (1, 4)}, {"sizes": (0, 2)}, "input 'sizes' has values [0, 2], but"),
    ],
)
def test_what_no_profile_takes_is_told_with_what_it_would(shapes: Any, values: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        pick(describe(RESHAPE).profiles, shapes, values)
    assert caught.value.message.startswith(text)
    assert "the engine's optimization profile 0 takes" in caught.value.message


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (FakeTensor("x", (1,), "FP8"), "unsupported datatype 'FP8' for input 'x'"),
        (
            FakeTensor("x", (1,), format="CHW32"),
            "input 'x' has the format CHW32; build the engine with linear",
        ),
    ],
)
def test_tensors_that_requests_cannot_have_are_refused(tensor: FakeTensor, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        completed(FakeEngine([tensor, output("y", (1,))], [{}]))
    assert caught.value.message.startswith(text)
