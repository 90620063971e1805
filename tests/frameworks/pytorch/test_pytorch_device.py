"""Tensors that a program takes and leaves where they are, with the CPU in place of a GPU: DLPack knows both."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halimede.backends.base import Instance
from halimede.core.datatypes import ALL, BYTES, FP32, INT32, Datatype
from halimede.core.device_tensors import CPU, CUDA, DeviceTensor
from halimede.core.errors import InternalError
from halimede.core.requests import InferRequest
from halimede.core.tensors import Array, Tensor
from tests.backends.helpers import Loaded, floats, request, wire
from tests.support.fake_gpu import FakeGpu

torch = pytest.importorskip("torch", reason="needs PyTorch (torch), which is not installed")

from halimede.backends.pytorch.instance import PyTorchInstance  # noqa: E402
from halimede.backends.pytorch.program import TorchScript  # noqa: E402
from halimede.backends.pytorch.settings import Settings  # noqa: E402
from tests.frameworks.pytorch import torch_models  # noqa: E402
from tests.frameworks.pytorch.torch_helpers import ADD_SUB, config_text, load, source_at  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

DEVICE = CPU, 0


def on_device(
    directory: Path,
    module: Any,
    inputs: dict[str, str],
    outputs: dict[str, str],
    parameters: dict[str, str] | None = None,
    batch: int = 8,
) -> Loaded:
    """The module, whose instance takes and leaves tensors on the stand-in."""
    model = load(directory, module, inputs, outputs, batch, parameters)
    model.instance.device = DEVICE
    return model


def run(model: Loaded, *requests: InferRequest) -> list[dict[str, Tensor]]:
    """The outputs of requests that run as one batch."""
    return [response.outputs for response in model.run(*requests)]


def asking(inputs: dict[str, Array | Tensor], *on_device: str) -> InferRequest:
    """A request whose outputs of those names may stay."""
    made = request(inputs)
    made.on_device = on_device
    return made


def forbid_copies(tensor: Tensor) -> DeviceTensor:
    """The tensor, which is on the device, and must not be copied to the host."""
    assert isinstance(tensor, DeviceTensor)
    assert tensor.device == DEVICE
    tensor._copied = lambda: pytest.fail("it was copied to the host")  # type: ignore[assignment]  # noqa: SLF001 - a copy to the host is invisible otherwise
    return tensor


def address(tensor: DeviceTensor) -> int:
    return int(torch.from_dlpack(tensor.elements).data_ptr())


@pytest.mark.parametrize("mode", ["true", "false"])
def test_the_outputs_of_one_run_are_the_inputs_of_the_next_uncopied(tmp_path: Path, mode: str) -> None:
    outputs = {"SUM": "FP32 [2]", "DIFFERENCE": "FP32 [2]"}
    model = on_device(tmp_path, torch_models.AddSub(), ADD_SUB, outputs, {"INFERENCE_MODE": mode})
    (first,) = run(model, asking({"INPUT0": floats([1, 2]), "INPUT1": floats([10, 20])}, *outputs))
    inputs: dict[str, Array | Tensor] = {
        "INPUT0": forbid_copies(first["SUM"]),
        "INPUT1": forbid_copies(first["DIFFERENCE"]),
    }
    (second,) = run(model, asking(inputs, "SUM"))
    assert type(second["DIFFERENCE"]) is Tensor
    assert second["DIFFERENCE"].array.tolist() == [[20, 40]]
    assert isinstance(second["SUM"], DeviceTensor)
    assert second["SUM"].array.tolist() == [[2, 4]]


def test_requests_of_a_batch_keep_their_rows_and_join_again(tmp_path: Path) -> None:
    model = on_device(tmp_path, torch_models.Linear(2), {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    rows = [floats([1, 2]), floats([3, 4], [5, 6])]
    kept = [forbid_copies(each["y"]) for each in run(model, *(asking({"x": row}, "y") for row in rows))]
    assert [tensor.shape for tensor in kept] == [(1, 2), (2, 2)]
    again = run(model, *(asking({"x": tensor}) for tensor in reversed(kept)))
    twice = [model(x=model(x=row)["y"])["y"] for row in reversed(rows)]
    for got, expected in zip(again, twice, strict=True):
        np.testing.assert_allclose(got["y"].array, expected, rtol=1e-5)


def test_a_batch_with_an_input_from_the_host_is_joined_there(tmp_path: Path) -> None:
    model = on_device(tmp_path, torch_models.Training(), {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    (kept,) = run(model, asking({"x": floats([1, 2])}, "y"))
    first, second = run(model, asking({"x": kept["y"]}), asking({"x": floats([3, 4])}))
    assert [first["y"].array.tolist(), second["y"].array.tolist()] == [[[1, 2]], [[3, 4]]]


@pytest.mark.parametrize("datatype", [each for each in ALL if each is not BYTES], ids=str)
def test_every_datatype_passes(tmp_path: Path, datatype: Datatype) -> None:
    text = f"{datatype.config_name.removeprefix('TYPE_')} [3]"
    model = on_device(tmp_path, torch_models.Identity(), {"x": text}, {"y": text})
    sent = wire(np.array([[1, 0, 1]]).astype(datatype.numpy), datatype)
    (first,) = run(model, asking({"x": sent}, "y"))
    (second,) = run(model, asking({"x": forbid_copies(first["y"])}))
    assert second["y"].datatype is datatype
    assert bytes(second["y"].data) == bytes(sent.data)


def test_a_program_that_writes_to_its_inputs_gets_its_own(tmp_path: Path) -> None:
    model = on_device(tmp_path, torch_models.Doubler(), {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    (first,) = run(model, asking({"x": floats([1, 2])}, "y"))
    for _ in range(2):  # the second reader of the tensor
        (second,) = run(model, asking({"x": first["y"]}, "y"))
        assert second["y"].array.tolist() == [[4, 8]]
    assert torch.from_dlpack(first["y"].elements).tolist() == [[2, 4]]  # type: ignore[attr-defined]


def test_what_stays_is_nobody_else_s_state(tmp_path: Path) -> None:
    model = on_device(tmp_path, torch_models.Counter(), {"x": "FP32 [1]"}, {"y": "FP32 [1]"})
    kept = [run(model, asking({"x": floats([0])}, "y"))[0]["y"] for _ in range(3)]
    assert [tensor.array.tolist() for tensor in kept] == [[[1]], [[2]], [[3]]]


def test_an_input_that_is_given_back_is_copied_on_the_device(tmp_path: Path) -> None:
    model = on_device(tmp_path, torch_models.Identity(), {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    (first,) = run(model, asking({"x": floats([1, 2])}, "y"))
    (second,) = run(model, asking({"x": forbid_copies(first["y"])}, "y"))
    assert address(forbid_copies(first["y"])) != address(forbid_copies(second["y"]))


def test_ragged_inputs_are_joined_flat(tmp_path: Path) -> None:
    text = """backend: "pytorch" max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
        batch_input { target_name: "counts" kind: BATCH_ELEMENT_COUNT data_type: TYPE_INT32 source_input: "x" }
        output { name: "y" data_type: TYPE_FP32 dims: 1 }"""
    torch_models.save_script(tmp_path / "m" / "1" / "model.pt", torch_models.Ragged())
    model = Loaded(source_at(tmp_path, text))
    model.instance.device = DEVICE
    tensors = [
        DeviceTensor(FP32, values.shape, torch.from_numpy(values), values.copy, "it")
        for values in (floats([1, 2]), floats([3, 4, 5]))
    ]
    results = run(model, *(asking({"x": forbid_copies(tensor)}, "y") for tensor in tensors))
    assert [each["y"].array.tolist() for each in results] == [[[3]], [[12]]]


def test_a_scalar_stays_as_one_element(tmp_path: Path) -> None:
    model = on_device(tmp_path, torch_models.Sum(), {"x": "FP32 [2]"}, {"y": "FP32 [1]"}, batch=0)
    (kept,) = run(model, asking({"x": np.array([1, 2], np.float32)}, "y"))
    assert isinstance(kept["y"], DeviceTensor)
    assert (kept["y"].shape, kept["y"].array.tolist()) == ((1,), [3])


def test_memory_that_torch_did_not_make_is_taken_and_let_go_of(tmp_path: Path) -> None:
    gpu = FakeGpu()
    gpu.device = DEVICE
    model = on_device(tmp_path, torch_models.Training(), {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    (result,) = run(model, asking({"x": gpu.tensor(floats([1, 2]))}, "y"))
    assert result["y"].array.tolist() == [[1, 2]]
    assert (gpu.downloads, gpu.empty.is_set()) == (0, True)


def test_memory_that_cannot_be_taken_is_told_with_both_sides(tmp_path: Path) -> None:
    gpu = FakeGpu()
    gpu.device = DEVICE
    model = on_device(tmp_path, torch_models.Training(), {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    other = gpu.put(np.zeros((1, 2), np.int32), INT32)
    wrong = DeviceTensor(FP32, (1, 2), other, other.__dlpack__, "output 'OUT' of model 'a'")
    with pytest.raises(InternalError) as caught:
        run(model, asking({"x": wrong}))
    assert caught.value.message == (
        "input 'x' cannot take over output 'OUT' of model 'a' on cpu:0: it is torch.int32, not FP32"
    )
    assert run(model, asking({"x": floats([1, 2])}))[0]["y"].array.tolist() == [[1, 2]]


def test_an_output_of_another_datatype_than_configured_is_refused_on_the_device_too(tmp_path: Path) -> None:
    model = on_device(tmp_path, torch_models.Identity(), {"x": "FP32 [2]"}, {"y": "FP16 [2]"})
    with pytest.raises(InternalError, match="output 'y' of the model is of datatype TYPE_FP32"):
        run(model, asking({"x": floats([1, 2])}, "y"))


@pytest.mark.parametrize(
    ("place", "device"), [("cpu", None), ("cuda:1", (CUDA, 1)), ("cuda", None), ("meta", None)]
)
def test_instances_say_on_which_gpu_they_are(
    tmp_path: Path, place: str, device: tuple[int, int] | None
) -> None:
    text = config_text({"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    path = torch_models.save_script(tmp_path / "m" / "1" / "model.pt", torch_models.Identity())
    config = source_at(tmp_path, text).config
    program = TorchScript(str(path), "cpu")
    instance: Instance = PyTorchInstance(program, config, Settings.from_config(config), place)
    assert instance.device == device
