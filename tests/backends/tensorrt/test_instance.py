"""Batches in execution contexts, with a context and CUDA that work in the host's memory."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from halimede.backends.batch import Batch
from halimede.backends.tensorrt.engine import describe
from halimede.backends.tensorrt.instance import TensorRTInstance
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.errors import InternalError, InvalidArgumentError, OutOfMemoryError
from halimede.core.tensors import Array
from halimede.engine.validation import validate
from tests.backends.helpers import floats, request
from tests.support.fake_tensorrt import FakeContext, FakeCuda, FakeEngine, FakeTensor, output

X, Y = FakeTensor("x", (-1, 4)), output("y", (-1, 4))
SMALL = {"x": [(1, 4), (1, 4), (2, 4)]}
LARGE = {"x": [(1, 4), (8, 4), (16, 4)]}
CONFIG = """name: "m" backend: "tensorrt" max_batch_size: 16
    input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }"""


class Served:
    """An instance, and what it runs on."""

    def __init__(
        self,
        config: str = CONFIG,
        tensors: Sequence[FakeTensor] = (X, Y),
        profiles: Sequence[Any] = (SMALL, LARGE),
        values: Sequence[Any] = (),
        run: Callable[[dict[str, Array]], dict[str, Array]] = lambda inputs: {"y": inputs["x"] + 1},
        **rest: Any,
    ) -> None:
        parsed = parse_text(config, "test")
        normalise(parsed, (0,))
        self.signature = Signature.from_config(parsed)
        self.cuda = FakeCuda()
        engine = describe(FakeEngine(tensors, profiles, values))
        self.contexts = [FakeContext(tensors, self.cuda, run) for _ in profiles]
        contexts = list(zip(engine.profiles, self.contexts, strict=True))
        self.instance = TensorRTInstance(self.cuda, 3, engine, contexts, lambda: "it said why", **rest)
        self.instance.choose_profiles()

    def __call__(self, *arrays: dict[str, Array], outputs: tuple[str, ...] = ()) -> list[dict[str, Array]]:
        """The outputs of requests that run as one batch."""
        requests = [request({**each}, outputs) for each in arrays]
        for each in requests:
            validate(each, self.signature)
        batch = Batch(self.signature, requests, sum(each.batch_size for each in requests))
        self.instance.execute(batch)
        return [
            {name: tensor.array for name, tensor in response.outputs.items()} for response in batch.responses
        ]


@pytest.mark.parametrize("pinned", [(True, True), (False, False), (True, False)])
def test_requests_run_as_one_batch(pinned: tuple[bool, bool]) -> None:
    served = Served(pinned=pinned)
    one, two = floats([1, 2, 3, 4]), floats([5, 6, 7, 8], [9, 9, 9, 9])
    first, second = served({"x": one}, {"x": two})
    np.testing.assert_array_equal(first["y"], one + 1)
    np.testing.assert_array_equal(second["y"], two + 1)
    assert served.cuda.copies == [("to device", 48), ("to host", 48)]
    assert set(served.cuda.devices) == {3}
    assert bool(served.cuda.pinned) == any(pinned)


def test_ragged_requests_are_joined_flat_and_cut_apart() -> None:
    tensors = (FakeTensor("x", (-1,)), FakeTensor("ends", (-1,), "INT32"), output("y", (-1,)))
    config = """name: "m" backend: "tensorrt" max_batch_size: 16
        input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
        output { name: "y" data_type: TYPE_FP32 dims: -1 }
        batch_input {
            kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "x"
        }
        batch_output { target_name: "y" source_input: "x" }"""
    profile = {"x": [(1,), (8,), (99,)], "ends": [(1,), (8,), (16,)]}
    seen: list[object] = []

    def run(inputs: dict[str, Array]) -> dict[str, Array]:
        seen.append(inputs["ends"].tolist())
        return {"y": inputs["x"] + 1}

    served = Served(config, tensors, [profile], run=run)
    first, second = served({"x": floats([1, 2, 3])}, {"x": floats([4], [5])})
    assert (first["y"].tolist(), second["y"].tolist()) == ([[2, 3, 4]], [[5], [6]])
    assert seen == [[3, 5]]


def test_answers_stay_when_the_memory_is_used_again() -> None:
    served = Served()
    (first,) = served({"x": floats([1, 1, 1, 1])})
    served({"x": floats([2, 2, 2, 2])})
    np.testing.assert_array_equal(first["y"], floats([2, 2, 2, 2]))


def test_each_batch_runs_in_the_context_of_its_profile() -> None:
    served = Served()
    assert [context.profile for context in served.contexts] == [0, 1]
    for rows in (1, 2, 8, 16, 1):
        (outputs,) = served({"x": np.full((rows, 4), rows, np.float32)})
        np.testing.assert_array_equal(outputs["y"], np.full((rows, 4), rows + 1, np.float32))
    assert [context.runs for context in served.contexts] == [3, 2]


def test_shapes_are_told_only_when_they_change() -> None:
    served = Served(profiles=[LARGE])
    (context,) = served.contexts
    for rows, value in ((4, 1), (4, 2), (8, 3), (4, 4), (4, 5)):
        (outputs,) = served({"x": np.full((rows, 4), value, np.float32)})
        np.testing.assert_array_equal(outputs["y"], np.full((rows, 4), value + 1, np.float32))
    assert context.inferences == 3
    context.works = False
    with pytest.raises(InternalError):
        served({"x": np.zeros((4, 4), np.float32)})
    context.works = True
    served({"x": np.zeros((4, 4), np.float32)})
    assert context.inferences == 4


def test_closing_gives_all_memory_back() -> None:
    served = Served()
    for rows in (1, 16, 4):
        served({"x": np.zeros((rows, 4), np.float32)})
    assert len(served.cuda.memory) == len(served.cuda.pinned) == 2
    served.instance.close()
    served.instance.close()
    assert not served.cuda.memory
    assert not served.cuda.pinned
    assert not served.cuda.streams


def test_shape_tensors_stay_on_the_host_and_choose_the_profile() -> None:
    sizes = FakeTensor("sizes", (2,), "INT64", location="HOST", is_shape=True)
    config = """name: "m" backend: "tensorrt" input { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] }
        input { name: "sizes" data_type: TYPE_INT64 dims: 2 is_shape_tensor: true }
        output { name: "y" data_type: TYPE_FP32 dims: [ -1, -1 ] }"""
    served = Served(
        config,
        (FakeTensor("x", (2, 2)), sizes, output("y", (-1, -1))),
        [{}, {}],
        [{"sizes": [(1, 1), (2, 2), (2, 2)]}, {"sizes": [(1, 1), (4, 1), (4, 4)]}],
        lambda inputs: {"y": inputs["x"].reshape(inputs["sizes"])},
    )
    for context in served.contexts:
        context.output_shapes = {"y": (4, 1)}
    (outputs,) = served({"x": floats([1, 2], [3, 4]), "sizes": np.array([4, 1])})
    np.testing.assert_array_equal(outputs["y"], floats([1], [2], [3], [4]))
    assert [context.runs for context in served.contexts] == [0, 1]
    with pytest.raises(InvalidArgumentError, match=r"input 'sizes' has values \[5, 1\], but the engine's"):
        served({"x": floats([1, 2], [3, 4]), "sizes": np.array([5, 1])})


def test_only_wanted_outputs_are_copied_back() -> None:
    config = CONFIG + 'output { name: "z" data_type: TYPE_FP32 dims: 4 }'
    served = Served(
        config, (X, Y, output("z", (-1, 4))), run=lambda inputs: {"y": inputs["x"], "z": -inputs["x"]}
    )
    (outputs,) = served({"x": floats([1, 2, 3, 4])}, outputs=("z",))
    assert list(outputs) == ["z"]
    np.testing.assert_array_equal(outputs["z"], -floats([1, 2, 3, 4]))
    assert served.cuda.copies == [("to device", 16), ("to host", 16)]


def test_scalars_are_one_element_to_clients() -> None:
    config = """name: "m" backend: "tensorrt" input { name: "x" data_type: TYPE_FP32 dims: 1 }
        output { name: "y" data_type: TYPE_FP32 dims: 1 }"""
    served = Served(config, (FakeTensor("x", ()), output("y", ())), [{}])
    (outputs,) = served({"x": np.array([4], np.float32)})
    assert outputs["y"].tolist() == [5]


def test_an_empty_tensor_runs_too() -> None:
    config = """name: "m" backend: "tensorrt" input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }
        output { name: "y" data_type: TYPE_FP32 dims: [ -1, 4 ] }"""
    served = Served(config, profiles=[{"x": [(0, 4), (1, 4), (2, 4)]}])
    (outputs,) = served({"x": np.zeros((0, 4), np.float32)})
    assert outputs["y"].shape == (0, 4)
    assert served.cuda.copies == []


def test_a_batch_that_no_profile_takes_is_refused_and_the_next_runs() -> None:
    served = Served(profiles=[SMALL])
    with pytest.raises(InvalidArgumentError) as caught:
        served({"x": np.zeros((3, 4), np.float32)})
    assert caught.value.message == (
        "input 'x' has shape [3, 4], but the engine's optimization profile 0 takes shape from [1, 4] to [2, 4]"
    )
    served({"x": floats([1, 2, 3, 4])})


def test_a_failed_run_says_what_tensorrt_said_and_the_next_runs() -> None:
    served = Served(profiles=[LARGE])
    (context,) = served.contexts
    context.works = False
    with pytest.raises(InternalError, match="TensorRT: the engine refused to run: it said why"):
        served({"x": floats([1, 2, 3, 4])})
    assert not any(served.cuda.streams.values())
    context.works, context.unknown = True, ["x"]
    with pytest.raises(InternalError, match="TensorRT: the shapes of x cannot be told: it said why"):
        served({"x": floats([1, 2, 3, 4])})
    context.unknown = []
    assert len(served({"x": floats([1, 2, 3, 4])})) == 1


def test_outputs_whose_shape_depends_on_data_are_refused_by_name() -> None:
    served = Served(profiles=[LARGE])
    served.contexts[0].output_shapes = {"y": (-1, 4)}
    with pytest.raises(InternalError, match=r"output 'y' has a shape that depends on the values of inputs"):
        served({"x": floats([1, 2, 3, 4])})


def test_want_of_memory_is_told_as_such_and_smaller_batches_run() -> None:
    served = Served(profiles=[LARGE])
    served.cuda.limit = 64
    with pytest.raises(OutOfMemoryError, match="cannot allocate 256 bytes on the GPU"):
        served({"x": np.zeros((16, 4), np.float32)})
    (outputs,) = served({"x": np.zeros((4, 4), np.float32)})
    assert outputs["y"].shape == (4, 4)
    served.instance.close()
    assert not served.cuda.memory
    assert not served.cuda.pinned
