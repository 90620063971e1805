"""Runs between bound tensors, with the CPU in place of a GPU: onnxruntime binds its memory in the same way."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from halimede.backends.devices import DeviceMemory
from halimede.backends.onnx.backend import OnnxInstance
from halimede.backends.onnx.device import device_runs
from halimede.core.datatypes import BF16, BYTES, FP32, Datatype
from halimede.core.device_tensors import CPU, DeviceTensor
from halimede.core.errors import InternalError
from halimede.core.requests import InferRequest
from halimede.core.tensors import Array, Tensor
from tests.backends.helpers import Loaded, floats, load, request
from tests.support import onnx_models

DEVICE = CPU, 0


class OnDevice:
    """A model whose instance takes and leaves tensors on the stand-in."""

    def __init__(self, directory: Path, model: onnx.ModelProto, text: str = "") -> None:
        self.loaded: Loaded = load(directory, text, model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        options = onnxruntime.RunOptions()
        self.instance = self.loaded.instance = OnnxInstance(
            session, self.loaded.signature, options, may_block=True, device=DEVICE
        )

    def run(self, *requests: InferRequest) -> list[dict[str, Tensor]]:
        """The outputs of requests that run as one batch."""
        responses = self.loaded.run(*requests)
        for response in responses:
            assert response.error is None
        return [response.outputs for response in responses]


def asking(inputs: dict[str, Array | Tensor], *on_device: str, outputs: tuple[str, ...] = ()) -> InferRequest:
    """A request for outputs, some of which may stay."""
    made = request(inputs, outputs)
    made.on_device = on_device
    return made


def placed(array: Array, datatype: Datatype = FP32) -> DeviceTensor:
    """The array on the stand-in; it cannot be copied to the host."""
    memory = DeviceMemory(array.ctypes.data, array.shape, datatype, DEVICE, array)

    def copy() -> Array:
        raise AssertionError("it was copied to the host")

    return DeviceTensor(datatype, array.shape, memory, copy, "output 'OUT' of model 'a'")


def aligned(*rows: list[float]) -> Array:
    """The rows where a GPU's allocator would put them."""
    array = floats(*rows)
    space = np.zeros(array.nbytes + 256, np.uint8)
    start = -space.ctypes.data % 256
    view = space[start : start + array.nbytes].view(np.float32).reshape(array.shape)
    view[:] = array
    return view


@pytest.fixture(autouse=True)
def alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What onnxruntime's allocator gives on the stand-in."""
    monkeypatch.setattr("halimede.backends.onnx.device._ALIGNMENT", 64)


@pytest.fixture
def adds(tmp_path: Path) -> OnDevice:
    return OnDevice(tmp_path, onnx_models.add_sub(dims=(2,)))


def test_the_outputs_of_one_run_are_the_inputs_of_the_next_uncopied(adds: OnDevice) -> None:
    first = asking({"INPUT0": floats([1, 2]), "INPUT1": floats([10, 20])}, "OUTPUT0", "OUTPUT1")
    (outputs,) = adds.run(first)
    total, difference = outputs["OUTPUT0"], outputs["OUTPUT1"]
    assert isinstance(total, DeviceTensor)
    assert isinstance(difference, DeviceTensor)
    assert total.device == adds.instance.device == DEVICE
    for tensor in (total, difference):
        tensor._copied = lambda: pytest.fail("it was copied to the host")  # type: ignore[assignment]  # noqa: SLF001 - a copy to the host is invisible otherwise
    (outputs,) = adds.run(asking({"INPUT0": total, "INPUT1": difference}))
    assert {name: (type(each), each.array.tolist()) for name, each in outputs.items()} == {
        "OUTPUT0": (Tensor, [[2, 4]]),
        "OUTPUT1": (Tensor, [[20, 40]]),
    }


def test_inputs_on_the_device_and_on_the_host_mix(adds: OnDevice) -> None:
    made = asking({"INPUT0": placed(aligned([1, 2])), "INPUT1": floats([10, 20])}, "OUTPUT0")
    (outputs,) = adds.run(made)
    assert {name: type(each) for name, each in outputs.items()} == {
        "OUTPUT0": DeviceTensor,
        "OUTPUT1": Tensor,
    }
    assert [outputs[f"OUTPUT{index}"].array.tolist() for index in (0, 1)] == [[[11, 22]], [[-9, -18]]]


def test_rows_that_shared_a_batch_before_are_one_block(adds: OnDevice) -> None:
    block = aligned([1, 2], [3, 4], [5, 6])
    whole = placed(block).elements
    assert isinstance(whole, DeviceMemory)
    pieces = [
        DeviceTensor(FP32, part.shape, part, lambda: pytest.fail("it was copied"), "it")
        for part in (whole[slice(0, 1)], whole[slice(1, 3)])
    ]
    ones = (floats([1, 1]), floats([1, 1], [1, 1]))
    requests = [
        asking({"INPUT0": piece, "INPUT1": one}, "OUTPUT0", outputs=("OUTPUT0",))
        for piece, one in zip(pieces, ones, strict=True)
    ]
    first, second = adds.run(*requests)
    assert isinstance(first["OUTPUT0"], DeviceTensor)
    assert first["OUTPUT0"].array.tolist() == [[2, 3]]
    assert second["OUTPUT0"].array.tolist() == [[4, 5], [6, 7]]


def test_rows_that_lie_apart_or_askew_pass_through_the_host(adds: OnDevice) -> None:
    apart, copies = [aligned([1, 2]), aligned([3, 4])], []

    def tensor(array: Array) -> DeviceTensor:
        def copy() -> Array:
            copies.append(array)
            return array

        return DeviceTensor(
            FP32, array.shape, DeviceMemory(array.ctypes.data, array.shape, FP32, DEVICE, array), copy, "it"
        )

    ones = floats([1, 1])
    results = adds.run(*(asking({"INPUT0": tensor(each), "INPUT1": ones}) for each in reversed(apart)))
    assert [each["OUTPUT0"].array.tolist() for each in results] == [[[4, 5]], [[2, 3]]]
    assert len(copies) == 2
    askew = aligned([0, 1, 2])[:, 1:]
    (outputs,) = adds.run(asking({"INPUT0": tensor(askew), "INPUT1": ones}))
    assert outputs["OUTPUT0"].array.tolist() == [[2, 3]]
    assert len(copies) == 3


def test_requests_without_such_tensors_run_as_ever(adds: OnDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def bound(*args: Any) -> Any:
        pytest.fail("a binding was made")

    monkeypatch.setattr(onnxruntime.InferenceSession, "io_binding", bound)
    (outputs,) = adds.run(asking({"INPUT0": floats([1, 2]), "INPUT1": floats([10, 20])}))
    assert outputs["OUTPUT0"].array.tolist() == [[11, 22]]


@pytest.mark.parametrize(
    "dtype", [np.bool_, *(f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)), "f2", "f4", "f8"]
)
def test_every_datatype_passes(tmp_path: Path, dtype: Any) -> None:
    dtype = np.dtype(dtype)
    number = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    model = OnDevice(tmp_path, onnx_models.identity(number, (3,)))
    array = np.array([[1, 0, 1]], dtype)
    (outputs,) = model.run(asking({"INPUT0": array}, "OUTPUT0"))
    tensor = outputs["OUTPUT0"]
    assert isinstance(tensor, DeviceTensor)
    (outputs,) = model.run(asking({"INPUT0": tensor}))
    np.testing.assert_array_equal(outputs["OUTPUT0"].array, array)
    assert outputs["OUTPUT0"].array.dtype == dtype


def test_what_stays_survives_the_model(tmp_path: Path) -> None:
    model = OnDevice(tmp_path, onnx_models.identity(dims=(2,)))
    (outputs,) = model.run(asking({"INPUT0": floats([1, 2])}, "OUTPUT0"))
    model.loaded.close()
    del model
    assert outputs["OUTPUT0"].array.tolist() == [[1, 2]]


def test_a_run_that_fails_says_what_onnxruntime_said_and_the_next_runs(tmp_path: Path) -> None:
    model = OnDevice(tmp_path, onnx_models.gather_by_index())
    block = placed(aligned([1, 2, 3, 4]))
    with pytest.raises(InternalError, match="onnx runtime error"):
        model.run(asking({"INPUT0": block, "INDEX": np.array([[99]])}, "OUTPUT0"))
    (outputs,) = model.run(asking({"INPUT0": block, "INDEX": np.array([[2]])}, "OUTPUT0"))
    assert isinstance(outputs["OUTPUT0"], DeviceTensor)
    assert outputs["OUTPUT0"].array.tolist() == [[3]]


def test_models_of_strings_or_bf16_and_cuda_graphs_pass_tensors_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adds = OnDevice(tmp_path, onnx_models.add_sub(dims=(2,)))
    session = onnxruntime.InferenceSession(
        onnx_models.add_sub(dims=(2,)).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    signature, options = adds.loaded.signature, onnxruntime.RunOptions()
    assert device_runs(session, signature, options, DEVICE) is not None
    for graphs in ({"enable_cuda_graph": "1"}, {"trt_cuda_graph_enable": "True"}):
        given = {"CUDAExecutionProvider": graphs}
        monkeypatch.setattr(session, "get_provider_options", lambda given=given: given)
        assert device_runs(session, signature, options, DEVICE) is None
    monkeypatch.setattr(session, "get_provider_options", lambda: {"CUDA": {"enable_cuda_graph": "0"}})
    assert device_runs(session, signature, options, DEVICE) is not None
    for datatype in (BYTES, BF16):
        name = datatype.config_name
        text = "".join(
            f'{side} {{ name: "{port}0" data_type: {name} dims: 2 }}'
            for side, port in (("input", "INPUT"), ("output", "OUTPUT"))
        )
        number = onnx.TensorProto.STRING if datatype is BYTES else onnx.TensorProto.BFLOAT16
        path = tmp_path / name
        model = OnDevice(path, onnx_models.identity(number, (2,)), f"max_batch_size: 4 {text}")
        assert model.instance.device is None
