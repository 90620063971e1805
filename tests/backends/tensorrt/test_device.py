"""Tensors that are on the GPU before a run, or stay there after it, with a CUDA that works in the host's memory."""

import gc
from typing import Any

import numpy as np
import pytest

from halimede.backends.batch import Batch
from halimede.backends.devices import DeviceMemory
from halimede.backends.tensorrt.blocks import Blocks
from halimede.core.datatypes import FP32
from halimede.core.device_tensors import CUDA, DeviceTensor
from halimede.core.errors import InternalError, OutOfMemoryError
from halimede.core.tensors import Array, Tensor
from halimede.engine.validation import validate
from tests.backends.helpers import floats, request
from tests.backends.tensorrt.test_instance import CONFIG, LARGE, Served, X, Y
from tests.support.fake_tensorrt import FakeCuda, FakeTensor, output


def served(**rest: Any) -> Served:
    return Served(profiles=[LARGE], **rest)


def run(model: Served, *inputs: Array | Tensor, on_device: tuple[str, ...] = ("y",)) -> list[Tensor]:
    """Output y of requests that run as one batch."""
    requests = [request({"x": each}) for each in inputs]
    for each in requests:
        each.on_device = on_device
        validate(each, model.signature)
    batch = Batch(model.signature, requests, sum(each.batch_size for each in requests))
    model.instance.execute(batch)
    return [response.outputs["y"] for response in batch.responses]


def test_an_output_that_stays_is_the_next_model_s_input_without_a_copy_to_the_host() -> None:
    one = served()
    (tensor,) = run(one, floats([1, 2, 3, 4]))
    assert isinstance(tensor, DeviceTensor)
    assert tensor.device == one.instance.device == (CUDA, 3)
    assert one.cuda.copies == [("to device", 16), ("on device", 16)]
    other = served()
    other.cuda.memory = one.cuda.memory  # the same GPU
    (result,) = run(other, tensor, on_device=())
    np.testing.assert_array_equal(result.array, floats([3, 4, 5, 6]))
    assert other.cuda.copies == [("on device", 16), ("to host", 16)]


def test_what_stays_is_the_same_after_the_next_run() -> None:
    model = served()
    (first,), (second,) = run(model, floats([1, 1, 1, 1])), run(model, floats([5, 5, 5, 5]))
    np.testing.assert_array_equal(first.array, floats([2, 2, 2, 2]))
    np.testing.assert_array_equal(second.array, floats([6, 6, 6, 6]))
    assert model.contexts[0].inferences == 1  # shapes are told only when they change, for such runs too


def test_requests_of_a_batch_keep_their_rows_and_join_again() -> None:
    model = served()
    first, second = run(model, floats([1, 2, 3, 4]), floats([5, 6, 7, 8], [9, 9, 9, 9]))
    assert (first.shape, second.shape) == ((1, 4), (2, 4))
    joined = run(model, second, first, on_device=())
    np.testing.assert_array_equal(joined[0].array, floats([7, 8, 9, 10], [11, 11, 11, 11]))
    np.testing.assert_array_equal(joined[1].array, floats([3, 4, 5, 6]))
    assert model.cuda.copies == [
        ("to device", 48),
        ("on device", 48),
        ("on device", 32),
        ("on device", 16),
        ("to host", 48),
    ]


def test_a_batch_with_an_input_from_the_host_is_copied_to_the_gpu_whole() -> None:
    model = served()
    (tensor,) = run(model, floats([1, 2, 3, 4]))
    results = run(model, tensor, floats([0, 0, 0, 0]), on_device=())
    np.testing.assert_array_equal(results[0].array, floats([3, 4, 5, 6]))
    np.testing.assert_array_equal(results[1].array, floats([1, 1, 1, 1]))
    assert model.cuda.copies[2:] == [("to host", 16), ("to device", 32), ("to host", 32)]


def test_memory_comes_back_when_nobody_has_it_and_is_used_again() -> None:
    model = served()
    before = len(model.cuda.memory)
    for _ in range(4):
        (tensor,) = run(model, floats([1, 2, 3, 4]))
        del tensor
    assert len(model.cuda.memory) == before + 3  # input, output, and one block
    held = [run(model, floats([1, 2, 3, 4])) for _ in range(2)]
    assert len(model.cuda.memory) == before + 4
    del held


def test_memory_that_is_out_when_the_model_goes_is_freed_when_it_comes_back() -> None:
    model = served()
    (tensor,) = run(model, floats([1, 2, 3, 4]))
    run(model, floats([1, 2, 3, 4]))
    model.instance.close()
    assert len(model.cuda.memory) == 1
    np.testing.assert_array_equal(tensor.array, floats([2, 3, 4, 5]))
    del tensor
    assert not model.cuda.memory


def test_a_run_that_fails_gives_its_memory_back_and_the_next_runs() -> None:
    model = served()
    (context,) = model.contexts
    (tensor,) = run(model, floats([1, 2, 3, 4]))
    context.works = False
    with pytest.raises(InternalError, match="the engine refused to run"):
        run(model, tensor)
    assert not any(model.cuda.streams.values())
    context.works = True
    (result,) = run(model, tensor)
    np.testing.assert_array_equal(result.array, floats([3, 4, 5, 6]))
    del tensor, result
    gc.collect()
    model.instance.close()
    assert not model.cuda.memory


def test_want_of_memory_for_what_stays_is_told_as_such() -> None:
    model = served()
    run(model, floats([1, 2, 3, 4]), on_device=())
    model.cuda.limit = 0
    with pytest.raises(OutOfMemoryError, match="cannot allocate 256 bytes on the GPU"):
        run(model, floats([1, 2, 3, 4]))
    run(model, floats([1, 2, 3, 4]), on_device=())


def test_what_belongs_on_the_host_is_taken_and_left_there() -> None:
    sizes = FakeTensor("sizes", (2,), "FLOAT", location="HOST")
    config = """name: "m" backend: "tensorrt" input { name: "x" data_type: TYPE_FP32 dims: 2 }
        output { name: "y" data_type: TYPE_FP32 dims: 2 } output { name: "z" data_type: TYPE_FP32 dims: 2 }"""
    sizes.name = "x"
    model = Served(
        config,
        (sizes, output("y", (2,), location="HOST"), output("z", (2,))),
        [{}],
        run=lambda inputs: {"y": inputs["x"] + 1, "z": inputs["x"] + 2},
    )
    array = np.array([1, 2], np.float32)
    memory = DeviceMemory(array.ctypes.data, array.shape, FP32, (CUDA, 3), array)
    tensor = DeviceTensor(FP32, (2,), memory, array.copy, "output 'OUT' of model 'a'")
    made = request({"x": tensor})
    made.on_device = ("y", "z")
    batch = Batch(model.signature, [made], 1)
    model.instance.execute(batch)
    outputs = batch.responses[0].outputs
    assert {name: type(each) for name, each in outputs.items()} == {"y": Tensor, "z": DeviceTensor}
    assert {name: each.array.tolist() for name, each in outputs.items()} == {"y": [2, 3], "z": [3, 4]}


def test_a_scalar_stays_as_one_element() -> None:
    config = """name: "m" backend: "tensorrt" input { name: "x" data_type: TYPE_FP32 dims: 1 }
        output { name: "y" data_type: TYPE_FP32 dims: 1 }"""
    model = Served(config, (FakeTensor("x", ()), output("y", ())), [{}])
    (tensor,) = run(model, np.array([4], np.float32))
    assert (type(tensor), tensor.shape) == (DeviceTensor, (1,))
    (result,) = run(model, tensor)
    assert result.array.tolist() == [6]


def test_an_empty_tensor_stays_too() -> None:
    config = """name: "m" backend: "tensorrt" input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }
        output { name: "y" data_type: TYPE_FP32 dims: [ -1, 4 ] }"""
    model = Served(config, (X, Y), [{"x": [(0, 4), (1, 4), (2, 4)]}])
    (tensor,) = run(model, np.zeros((0, 4), np.float32))
    assert (type(tensor), tensor.shape) == (DeviceTensor, (0, 4))
    (result,) = run(model, tensor)
    assert result.array.shape == (0, 4)


def test_only_outputs_that_may_stay_do() -> None:
    config = CONFIG + 'output { name: "z" data_type: TYPE_FP32 dims: 4 }'

    def compute(inputs: dict[str, Array]) -> dict[str, Array]:
        return {"y": inputs["x"], "z": -inputs["x"]}

    model = Served(config, (X, Y, output("z", (-1, 4))), [LARGE], run=compute)
    (tensor,) = run(model, floats([1, 2, 3, 4]))
    assert isinstance(tensor, DeviceTensor)
    assert model.cuda.copies == [("to device", 16), ("on device", 16), ("to host", 16)]


def test_blocks_are_of_sizes_that_fit_the_next_too() -> None:
    cuda = FakeCuda()
    blocks = Blocks(cuda)
    small = blocks.take(1)
    address = small.address
    del small
    assert blocks.take(256).address == address
    large = blocks.take(257)
    assert [len(block) for block in cuda.memory.values()] == [256, 512]
    del large
    blocks.close()
    assert not cuda.memory
