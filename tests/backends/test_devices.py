from typing import Any

import numpy as np
import pytest

from halimede.backends.batch import Batch
from halimede.backends.devices import (
    DeviceMemory,
    inputs_on,
    joined_shape,
    keep,
    staying,
    taken,
)
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.datatypes import ALL, BF16, BYTES, FP32, INT32, Datatype
from halimede.core.device_tensors import CPU, CUDA, DeviceTensor
from halimede.core.errors import InternalError
from halimede.core.requests import InferRequest
from halimede.core.tensors import Array, Tensor
from halimede_worker.tensors import dlpack
from tests.backends.helpers import floats, request
from tests.support.fake_gpu import FakeGpu, at

CONFIG = """name: "m" backend: "identity" max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: 2 } output { name: "y" data_type: TYPE_FP32 dims: 2 }"""
TWO = CONFIG + 'output { name: "z" data_type: TYPE_FP32 dims: 2 }'


def signature(text: str = CONFIG) -> Signature:
    config = parse_text(text, "test")
    normalise(config)
    return Signature.from_config(config)


def wanting(
    on_device: tuple[str, ...], outputs: tuple[str, ...] = (), tensor: Tensor | None = None
) -> InferRequest:
    """A request that wants those outputs, and those of them on the device."""
    made = request({"x": tensor or floats([1, 2])}, outputs)
    made.batch_size = made.inputs["x"].shape[0]
    made.on_device = on_device
    return made


def batch(*requests: InferRequest, text: str = CONFIG) -> Batch:
    return Batch(signature(text), list(requests), sum(each.batch_size for each in requests))


def elements(datatype: Datatype) -> Array:
    return np.arange(6).astype(datatype.numpy).reshape(3, 2)


@pytest.mark.parametrize("datatype", [each for each in ALL if each is not BYTES], ids=str)
def test_memory_is_passed_on_uncopied_and_in_rows(datatype: Datatype) -> None:
    array = elements(datatype)
    memory = DeviceMemory(array.ctypes.data, array.shape, datatype, (CUDA, 1), array)
    for rows in (slice(0, 3), slice(1, 2), slice(2, 3), slice(1, 1), ...):
        number, given, device = dlpack.take(memory[rows].__dlpack__(stream=5))
        part = array[rows]
        assert (number, device, given.shape) == (datatype.number, (CUDA, 1), part.shape)
        if part.size:
            assert given.ctypes.data == part.ctypes.data
        assert memory[rows].size == part.nbytes


def test_memory_is_kept_until_the_last_who_has_it_is_done() -> None:
    gpu = FakeGpu()
    memory = gpu.put(floats([1, 2], [3, 4]))
    capsule, row = memory.__dlpack__(), memory[slice(1, 2)]
    _, array, _ = dlpack.take(row.__dlpack__())
    del memory, row
    assert not gpu.empty.is_set()
    del capsule
    assert not gpu.empty.is_set()
    del array
    assert gpu.empty.is_set()


def test_memory_is_not_given_elsewhere_or_as_a_copy() -> None:
    memory = FakeGpu().put(floats([1]))
    for wish in ({"copy": True}, {"dl_device": (CPU, 0)}):
        with pytest.raises(BufferError, match="memory of cuda:0 is passed on where it is, uncopied"):
            memory.__dlpack__(**wish)
    memory.__dlpack__(stream=1, max_version=(1, 0), dl_device=(CUDA, 0), copy=False)


def test_inputs_count_as_there_only_if_those_of_all_requests_are() -> None:
    gpu, other = FakeGpu(), FakeGpu(1)
    here, there = gpu.tensor(floats([1, 2])), other.tensor(floats([3, 4]))
    on_host = wanting(())
    assert inputs_on(batch(wanting((), (), here), wanting((), (), here)), gpu.device) == {"x": [here, here]}
    for mixed in (
        [wanting((), (), here), on_host],
        [wanting((), (), here), wanting((), (), there)],
        [on_host],
    ):
        assert inputs_on(batch(*mixed), gpu.device) == {}
    assert inputs_on(batch(wanting((), (), here)), None) == {}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([((), ())], set()),
        ([(("y",), ("y",))], {"y"}),
        ([(("y",), ("y", "z"))], {"y"}),
        ([(("y",), ("y",)), (("y",), ("y",))], {"y"}),
        ([(("y",), ("y",)), ((), ("y",))], set()),
        ([((), ("y",)), (("y",), ("y",))], set()),
        ([(("y",), ("y",)), ((), ("z",))], {"y"}),
        ([(("y",), ("y",)), ((), ())], set()),
        ([(("y", "z"), ("y", "z")), (("z",), ("y", "z"))], {"z"}),
    ],
)
def test_an_output_stays_only_if_nobody_wants_it_on_the_host(
    requests: list[tuple[tuple[str, ...], tuple[str, ...]]], expected: set[str]
) -> None:
    assert staying(batch(*(wanting(*each) for each in requests), text=TWO)) == expected


def test_strings_and_outputs_cut_like_an_input_never_stay() -> None:
    text = """name: "m" backend: "identity" max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: 2 }
        output [ { name: "y" data_type: TYPE_STRING dims: 2 }, { name: "z" data_type: TYPE_FP32 dims: 2 } ]
        batch_output { target_name: "z" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }"""
    assert staying(batch(wanting(("y", "z"), ("y", "z")), text=text)) == set()


def test_each_request_gets_its_rows_and_only_those_who_want_them() -> None:
    gpu = FakeGpu()
    one = wanting(("y",), ("y",), Tensor.from_array(FP32, floats([1, 2], [3, 4])))
    made = batch(one, wanting((), ("z",)), wanting(("y",), ("y",)), text=TWO)
    whole = floats([1, 2], [3, 4], [5, 6], [7, 8])
    memory = gpu.put(whole)
    made.scatter({"z": -whole})
    keep(made, "y", memory, lambda rows: gpu.download(memory[rows]))
    first, second, third = (response.outputs for response in made.responses)
    assert (list(first), list(second), list(third)) == (["y"], ["z"], ["y"])
    assert isinstance(first["y"], DeviceTensor)
    assert isinstance(third["y"], DeviceTensor)
    assert first["y"].origin == "output 'y' of model 'm'"
    assert (first["y"].shape, third["y"].shape, gpu.downloads) == ((2, 2), (1, 2), 0)
    np.testing.assert_array_equal(first["y"].array, whole[:2])
    np.testing.assert_array_equal(third["y"].array, whole[3:])


def test_the_configuration_s_reshape_holds_on_the_device_too() -> None:
    text = CONFIG.replace(
        'name: "y" data_type: TYPE_FP32 dims: 2',
        'name: "y" data_type: TYPE_FP32 dims: 1 reshape: { shape: [ ] }',
    )
    gpu = FakeGpu()
    made = batch(wanting(("y",)), text=text)
    memory = gpu.put(np.array([5], np.float32))
    made.scatter({})
    keep(made, "y", memory, lambda rows: gpu.download(memory[rows]))
    kept = made.responses[0].outputs["y"]
    assert kept.shape == (1, 1)
    assert kept.array.tolist() == [[5]]


def test_an_output_with_other_rows_than_the_batch_is_refused() -> None:
    made, memory = batch(wanting(("y",))), FakeGpu().put(floats([1, 2], [3, 4]))
    made.scatter({})
    with pytest.raises(
        InternalError, match=r"output 'y' has shape \[2, 2\], which does not fit a batch of 1"
    ):
        keep(made, "y", memory, lambda rows: floats())


def test_inputs_left_out_are_not_gathered() -> None:
    text = CONFIG + 'input { name: "w" data_type: TYPE_FP32 dims: 1 }'
    gpu = FakeGpu()
    requests = [request({"x": gpu.tensor(floats([1, 2])), "w": floats([value])}) for value in (3, 4)]
    for count in (1, 2):
        made = Batch(signature(text), requests[:count], count)
        arrays = made.gather(inputs_on(made, gpu.device))
        assert {name: array.tolist() for name, array in arrays.items()} == {"w": [[3], [4]][:count]}
        assert joined_shape(made, "x") == (count, 2)
    assert gpu.downloads == 0
    assert list(Batch(signature(text), requests, 2).gather()) == ["x", "w"]
    assert gpu.downloads == 2


def test_ragged_inputs_are_flat_on_the_device_too() -> None:
    text = CONFIG.replace("dims: 2 } output", "dims: -1 allow_ragged_batch: true } output")
    gpu = FakeGpu()
    made = batch(
        wanting((), (), gpu.tensor(floats([1, 2]))), wanting((), (), gpu.tensor(floats([1, 2, 3]))), text=text
    )
    assert joined_shape(made, "x") == (5,)


def test_what_is_taken_can_be_read_at_its_address() -> None:
    gpu = FakeGpu()
    tensors = [gpu.tensor(floats([1, 2])), gpu.tensor(floats([3, 4]))]
    pieces = taken("x", tensors, 5)
    assert [at(each.address, each.size).view(np.float32).tolist() for each in pieces] == [[1, 2], [3, 4]]
    assert gpu.downloads == 0


class Odd:
    """Memory that is not what it should be."""

    def __init__(self, array: Array, datatype: Datatype, error: Exception | None = None) -> None:
        self._memory = FakeGpu().put(array, datatype)
        self._error = error

    def __dlpack__(self, *, stream: Any = None) -> Any:
        if self._error is not None:
            raise self._error
        return self._memory.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (Odd(np.zeros(2, np.int32), INT32), "it is INT32 [2], not FP32 [2]"),
        (Odd(np.zeros(3, np.float32), FP32), "it is FP32 [3], not FP32 [2]"),
        (Odd(np.zeros(2, np.uint16), BF16), "it is BF16 [2], not FP32 [2]"),
        (Odd(np.zeros(2, np.float32), FP32, RuntimeError("no stream")), "no stream"),
    ],
)
def test_memory_that_is_not_what_it_should_be_is_told_with_both_sides(odd: Odd, why: str) -> None:
    tensor = DeviceTensor(FP32, (2,), odd, lambda: floats(), "output 'OUT' of model 'a'")
    with pytest.raises(InternalError) as caught:
        taken("x", [tensor], None)
    assert caught.value.message == f"input 'x' cannot take over output 'OUT' of model 'a' on cuda:0: {why}"
