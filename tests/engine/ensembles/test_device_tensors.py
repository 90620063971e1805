"""Tensors that stay in the memory of a GPU between steps; the GPU is a stand-in, whose memory is the host's."""

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from halimede.backends.devices import DeviceMemory
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.device_tensors import DeviceTensor
from halimede.core.errors import CancelledError, InternalError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from tests.engine.ensembles.conftest import Start
from tests.engine.ensembles.fakes import FakeModel, ensemble, model, parse, ports, step, values
from tests.engine.ensembles.world import World, chain, identity, row
from tests.support.fake_gpu import STREAM, AddsOne, FakeGpu


@pytest.fixture
def gpu() -> Iterator[FakeGpu]:
    """A GPU whose memory must be free after the test, without the help of the garbage collector."""
    made = FakeGpu()
    gc.disable()
    try:
        yield made
        assert made.empty.wait(10), f"{made.used} blocks are still in use"
    finally:
        gc.enable()


def on_gpu(world: World, gpu: FakeGpu, *names: str, batching: str = "") -> list[AddsOne]:
    """Load models that add one on the GPU."""
    instances = []
    for name in names:
        instances.append(AddsOne(gpu))
        world.load(identity(name, batching), instances[-1])
    return instances


def result(world: World, config: ModelConfig, value: float = 1) -> list[float]:
    """What the ensemble gives as Y for one row of that value."""
    ((response,),) = world.infer(world.compose(config), row(value))
    assert response.error is None, response.error
    assert not isinstance(response.outputs["Y"], DeviceTensor)
    return values(response.outputs["Y"])


def fan(*steps: str, outputs: str = "Y Z") -> ModelConfig:
    """An ensemble of those steps."""
    return parse(
        f'name: "e" platform: "ensemble" max_batch_size: 8 {ports("input", "X", "4")} '
        f"{ports('output', outputs, '4')} ensemble_scheduling {{ {' '.join(steps)} }}"
    )


def adds(name: str, source: str, target: str) -> str:
    return step(name, f"INPUT0={source}", f"OUTPUT0={target}")


def test_a_tensor_stays_on_the_gpu_between_steps_that_agree(world: World, gpu: FakeGpu) -> None:
    a, b, c = on_gpu(world, gpu, "a", "b", "c")
    assert result(world, chain("a", "b", "c")) == [4] * 4
    assert (gpu.uploads, gpu.downloads) == (1, 1)
    assert (len(a.taken), len(b.taken), len(c.taken)) == (0, 1, 1)
    a.taken = b.taken = c.taken = []


def test_a_step_gets_the_very_object_that_the_one_before_made(
    world: World, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = on_gpu(world, gpu, "a", "b")
    made: list[DeviceMemory] = []
    streams: list[Any] = []
    put, export = gpu.put, DeviceMemory.__dlpack__

    def noted(*args: Any) -> DeviceMemory:
        made.append(put(*args))
        return made[-1]

    def exported(self: DeviceMemory, *, stream: Any = None) -> Any:
        streams.append(stream)
        return export(self, stream=stream)

    monkeypatch.setattr(gpu, "put", noted)
    monkeypatch.setattr(DeviceMemory, "__dlpack__", exported)
    assert result(world, chain("a", "b")) == [3] * 4
    assert len(b.taken) == 1
    assert b.taken[0] is made[0]
    assert streams == [STREAM]
    made.clear()
    b.taken.clear()


def test_a_tensor_for_a_step_on_cpus_is_copied_once_by_the_model_that_made_it(
    world: World, gpu: FakeGpu
) -> None:
    (a,) = on_gpu(world, gpu, "a")
    world.load(identity("cpu"))
    (b,) = on_gpu(world, gpu, "b")
    assert result(world, chain("a", "cpu", "b")) == [3] * 4
    assert (gpu.uploads, gpu.downloads) == (2, 2)
    assert a.taken == b.taken == []


def test_a_tensor_that_is_also_an_output_of_the_ensemble_is_copied_once(world: World, gpu: FakeGpu) -> None:
    _, b = on_gpu(world, gpu, "a", "b")
    config = fan(adds("a", "X", "Z"), adds("b", "Z", "Y"))
    ((response,),) = world.infer(world.compose(config), row(1))
    assert {name: values(tensor) for name, tensor in response.outputs.items()} == {"Y": [3] * 4, "Z": [2] * 4}
    assert gpu.downloads == 2  # one an output
    assert b.taken == []


def test_only_outputs_that_are_wanted_count(world: World, gpu: FakeGpu) -> None:
    _, b = on_gpu(world, gpu, "a", "b")
    made = world.compose(fan(adds("a", "X", "Z"), adds("b", "Z", "Y")))
    answered = threading.Event()
    request = InferRequest("e", row(1), lambda response, final: answered.set(), outputs=("Y",))
    world.loop.call(made.infer, request)
    assert answered.wait(60)
    assert (gpu.downloads, len(b.taken)) == (1, 1)
    b.taken.clear()


def test_steps_on_the_gpu_share_a_tensor(world: World, gpu: FakeGpu) -> None:
    _, b, c = on_gpu(world, gpu, "a", "b", "c")
    config = fan(adds("a", "X", "t"), adds("b", "t", "Y"), adds("c", "t", "Z"))
    ((response,),) = world.infer(world.compose(config), row(1))
    assert [values(response.outputs[name]) for name in "YZ"] == [[3] * 4] * 2
    assert (gpu.uploads, gpu.downloads) == (1, 2)
    assert b.taken == c.taken
    b.taken.clear()
    c.taken.clear()


def test_one_reader_on_cpus_is_enough_for_a_copy_by_the_model_that_made_it(
    world: World, gpu: FakeGpu
) -> None:
    _, b = on_gpu(world, gpu, "a", "b")
    world.load(identity("cpu"))
    config = fan(adds("a", "X", "t"), adds("b", "t", "Y"), adds("cpu", "t", "Z"))
    ((response,),) = world.infer(world.compose(config), row(1))
    assert [values(response.outputs[name]) for name in "YZ"] == [[3] * 4, [2] * 4]
    assert (gpu.uploads, gpu.downloads) == (2, 2)
    assert b.taken == []


def test_a_model_with_an_instance_on_cpus_takes_tensors_from_the_host(world: World, gpu: FakeGpu) -> None:
    on_gpu(world, gpu, "a")
    on_cpu = AddsOne(gpu)
    on_cpu.device = None
    world.load(identity("b"), AddsOne(gpu), on_cpu)
    assert not world.models["b"].takes_device_tensors
    assert result(world, chain("a", "b")) == [3] * 4
    assert gpu.downloads == 2


def test_a_tensor_on_another_gpu_passes_through_the_host(world: World, gpu: FakeGpu) -> None:
    other = FakeGpu(1)
    on_gpu(world, gpu, "a")
    (b,) = on_gpu(world, other, "b")
    assert result(world, chain("a", "b")) == [3] * 4
    assert (gpu.downloads, other.uploads, other.downloads) == (1, 1, 1)
    assert b.taken == []
    assert other.empty.wait(10)


def test_requests_that_share_batches_keep_their_rows(world: World, gpu: FakeGpu) -> None:
    instances = on_gpu(world, gpu, "a", "b", "c", batching="dynamic_batching { }")
    made = world.compose(chain("a", "b", "c"))
    answers = world.infer(made, *(row(value) for value in range(8)))
    assert [values(response.outputs["Y"]) for (response,) in answers] == [
        [value + 3] * 4 for value in range(8)
    ]
    assert [list(world.models[name].statistics.batches) for name in "abc"] == [[8]] * 3
    assert (gpu.uploads, gpu.downloads) == (1, 1)
    for instance in instances:
        instance.taken.clear()


def test_a_batch_shared_with_a_client_of_the_model_is_copied_to_the_host(world: World, gpu: FakeGpu) -> None:
    a, b = on_gpu(world, gpu, "a", "b", batching="dynamic_batching { }")
    made, answers, ended = world.compose(chain("a", "b")), [], threading.Semaphore(0)

    def respond(response: InferResponse | None, final: bool) -> None:
        answers.append(response)
        ended.release()

    def send() -> None:
        made.infer(InferRequest("e", row(1), respond))
        world.models["a"].infer(InferRequest("a", {"INPUT0": row(5)["X"]}, respond))

    world.loop.call(send)
    assert ended.acquire(timeout=60)
    assert ended.acquire(timeout=60)
    outputs = {name: tensor for answer in answers if answer for name, tensor in answer.outputs.items()}
    assert {name: values(tensor) for name, tensor in outputs.items()} == {"OUTPUT0": [6] * 4, "Y": [3] * 4}
    assert list(world.models["a"].statistics.batches) == [2]
    assert a.taken == b.taken == []


def test_clients_of_a_model_on_a_gpu_get_host_tensors(world: World, gpu: FakeGpu) -> None:
    on_gpu(world, gpu, "a")
    ((response,),) = world.infer(world.models["a"], {"INPUT0": row(1)["X"]})
    assert type(response.outputs["OUTPUT0"]) is type(row(1)["X"])
    assert values(response.outputs["OUTPUT0"]) == [2] * 4


def test_memory_that_cannot_be_taken_over_is_told_with_both_sides_and_the_next_request_runs(
    world: World, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = on_gpu(world, gpu, "a", "b")
    made = world.compose(chain("a", "b"))

    def lost(self: DeviceMemory, *, stream: Any = None) -> Any:
        raise BufferError("the context is gone")

    with monkeypatch.context() as patch:
        patch.setattr(DeviceMemory, "__dlpack__", lost)
        ((response,),) = world.infer(made, row(1))
    assert isinstance(response.error, InternalError)
    assert response.error.message == (
        "in ensemble 'e', input 'INPUT0' cannot take over output 'OUTPUT0' of model 'a' on cuda:0: the context is gone "
        "(in step 1, model 'b')"
    )
    ((response,),) = world.infer(made, row(1))
    assert values(response.outputs["Y"]) == [3] * 4
    b.taken.clear()


def test_memory_that_cannot_be_copied_to_the_host_is_told_with_both_sides(
    world: World, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu(world, gpu, "a")
    on_gpu(world, FakeGpu(1), "b")

    def lost(memory: DeviceMemory) -> Any:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(gpu, "download", lost)
    ((response,),) = world.infer(world.compose(chain("a", "b")), row(1))
    assert isinstance(response.error, InternalError)
    assert response.error.message == (
        "in ensemble 'e', output 'OUTPUT0' of model 'a' cannot be copied from cuda:0 to the host: an illegal memory "
        "access was encountered (in step 1, model 'b')"
    )


def test_a_failed_step_gives_the_memory_back(world: World, gpu: FakeGpu) -> None:
    _, b = on_gpu(world, gpu, "a", "b")
    made = world.compose(chain("a", "b"))
    b.fails = InternalError("it broke")
    ((response,),) = world.infer(made, row(1))
    assert response.error is not None
    assert response.error.message == "in ensemble 'e', it broke (in step 1, model 'b')"
    b.taken.clear()
    assert gpu.empty.wait(10)
    b.fails = None
    ((response,),) = world.infer(made, row(1))
    assert values(response.outputs["Y"]) == [3] * 4
    b.taken.clear()


def faked(name: str, **rest: Any) -> FakeModel:
    """A model on a GPU that answers when the test says so."""
    made = FakeModel(model(name, **rest))
    made.takes_device_tensors = True
    return made


def test_a_cancelled_request_gives_the_memory_back(start: Start, gpu: FakeGpu) -> None:
    bench = start(
        ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y")), a := faked("a"), b := faked("b")
    )
    request = bench.infer()
    assert a.requests[0].on_device == ("OUT",)
    a.send(OUT=gpu.tensor(np.ones(1, np.float32)))
    assert not gpu.empty.is_set()
    request.cancel()
    assert b.requests[0].cancelled
    b.fail(CancelledError("it was cancelled"))
    b.seen.clear()
    assert bench.error.message == "[request id: <id_unknown>] the request was cancelled"
    del request
    assert gpu.empty.is_set()


def test_a_request_that_waits_too_long_for_a_step_gives_the_memory_back(start: Start, gpu: FakeGpu) -> None:
    bench = start(
        ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y")), a := faked("a"), b := faked("b")
    )
    bench.infer(timeout_us=50)
    a.send(OUT=gpu.tensor(np.ones(1, np.float32)))
    b.fail(UnavailableError("Request timeout expired"))
    b.seen.clear()
    assert bench.error.message == "in ensemble 'e', Request timeout expired (in step 1, model 'b')"
    assert gpu.empty.is_set()


def test_the_reader_that_is_unloaded_meanwhile_gets_nothing_on_the_gpu(start: Start) -> None:
    bench = start(
        ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y")), a := faked("a"), faked("b")
    )
    del bench.models["b"]
    bench.infer()
    assert a.requests[0].on_device == ()
    a.send(1)
    assert "Request for unknown model: 'b' is not found (in step 1, model 'b')" in bench.error.message


def test_an_ensemble_inside_of_an_ensemble_passes_tensors_on_the_host(start: Start) -> None:
    inner = ensemble(step("b", "IN=X", "OUT=Y"), name="inner")
    bench = start(
        ensemble(step("a", "IN=X", "OUT=t"), step("inner", "X=t", "Y=u"), step("c", "IN=u", "OUT=Y")),
        a := faked("a"),
        b := faked("b"),
        faked("c"),
        inner,
    )
    bench.models["inner"] = bench.make(inner)
    bench.infer()
    assert a.requests[0].on_device == ()
    a.send(1)
    assert b.requests[0].on_device == ()


def test_a_reader_without_batch_dimension_gets_the_same_memory_under_its_shape(
    start: Start, gpu: FakeGpu
) -> None:
    bench = start(
        ensemble(step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y"), dims="2"),
        a := faked("a", batch=4, dims="2"),
        b := faked("b", dims="2"),
    )
    bench.infer({"X": gpu.tensor(np.ones(2, np.float32))})
    handed = gpu.tensor(np.array([[1, 2]], np.float32))
    a.send(OUT=handed)
    (seen,) = b.requests
    got = seen.inputs["IN"]
    assert isinstance(got, DeviceTensor)
    assert (got.shape, got.elements is handed.elements, gpu.downloads) == ((2,), True, 0)
    assert values(got) == [1, 2]
    b.send(5)
    a.seen.clear()
    b.seen.clear()
