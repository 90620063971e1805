"""Regions of a GPU's memory; the driver is a stand-in, whose memory is the host's."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from halimede.backends.batch import Batch
from halimede.backends.devices import DeviceMemory
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.datatypes import BYTES, FP32
from halimede.core.device_tensors import CUDA, DeviceTensor
from halimede.core.errors import InternalError, InvalidArgumentError, NotFoundError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Array, Tensor
from halimede.engine.validation import validate
from halimede.frontends.grpc import kserve_pb2 as pb
from halimede.frontends.grpc.shared_memory import SharedMemory
from halimede.frontends.http.routes import find_route
from halimede.frontends.http.shared_memory import SharedMemoryCalls
from halimede.frontends.shared_memory.cuda import CudaDriver, CudaPiece
from halimede.frontends.shared_memory.registry import Place, Regions
from halimede.frontends.shared_memory.requests import PlacedTensor, Places, use_regions
from tests.support.fake_cuda import FakeCuda
from tests.support.fake_gpu import AddsOne, FakeGpu

SIGNATURE = Signature.from_config(
    parse_text(
        'name: "m" max_batch_size: 8 '
        'input { name: "INPUT0" data_type: TYPE_FP32 dims: 2 } '
        'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 2 }',
        "test",
    )
)


class World:
    """A GPU with memory that a client shares, and the server's regions.

    Attributes:
        memory: of the client, on the GPU.
        handle: of it.
    """

    def __init__(self) -> None:
        self.cuda = FakeCuda()
        self.memory = np.arange(8, dtype=np.float32)
        self.handle = self.cuda.share(self.memory)
        self.regions = Regions(allowed=True, cuda=CudaDriver(self.cuda))

    def register(self, name: str = "r", size: int = 32) -> None:
        self.regions.cuda.register(name, self.handle, 0, size)

    def refusal(self, handle: bytes, device: int, size: int) -> str:
        with pytest.raises(InvalidArgumentError) as error:
            self.regions.cuda.register("r", handle, device, size)
        assert self.regions.cuda.status() == []
        return error.value.message.removeprefix("failed to register shared memory region 'r': invalid args: ")

    def piece(self, offset: int, size: int) -> CudaPiece:
        found = self.regions.piece(Place("r", offset, size))
        assert isinstance(found, CudaPiece)
        return found

    def open_count(self) -> int:
        return sum(self.cuda.opened.values())


@pytest.fixture
def world() -> World:
    return World()


class _Exchange:
    """A call over HTTP.

    Attributes:
        answer: status and document.
    """

    def __init__(self, document: object = None) -> None:
        self.body = memoryview(json.dumps(document).encode())
        self.answer: tuple[int, Any] = (0, None)

    def respond(self, status: int, parts: Any = ()) -> None:
        self.answer = status, json.loads(b"".join(parts) or b"null")


def over_http(world: World, path: str, document: object = None) -> tuple[int, Any]:
    route = find_route(f"/v2/cudasharedmemory{path}")
    assert route is not None
    exchange: Any = _Exchange(document)
    SharedMemoryCalls(world.regions, 1000).calls[route.call](exchange, route)
    answer: tuple[int, Any] = exchange.answer
    return answer


def test_regions_come_and_go_over_http(world: World) -> None:
    body = {
        "raw_handle": {"b64": base64.b64encode(world.handle).decode()},
        "device_id": 0,
        "byte_size": 32,
    }
    assert over_http(world, "/region/r/register", body) == (200, None)
    listed = [{"name": "r", "device_id": 0, "byte_size": 32}]
    assert over_http(world, "/status") == over_http(world, "/region/r/status") == (200, listed)
    assert over_http(world, "/region/r/unregister") == (200, None)
    assert over_http(world, "/status") == (200, [])
    assert world.open_count() == 0


def test_regions_come_and_go_over_grpc(world: World) -> None:
    methods = SharedMemory(world.regions)
    methods.register_cuda(
        pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=world.handle, device_id=0, byte_size=32)
    )
    (status,) = methods.cuda_status(pb.CudaSharedMemoryStatusRequest()).regions.values()
    assert (status.name, status.device_id, status.byte_size) == ("r", 0, 32)
    methods.unregister_cuda(pb.CudaSharedMemoryUnregisterRequest(name="r"))
    assert not methods.cuda_status(pb.CudaSharedMemoryStatusRequest()).regions
    assert world.open_count() == 0


def test_what_is_no_memory_of_a_gpu_is_refused_and_nothing_stays_open(world: World) -> None:
    assert world.refusal(b"x" * 64, 0, 32) == "cuIpcOpenMemHandle_v2: invalid argument"
    assert world.refusal(b"x", 0, 32) == "a handle has 64 bytes, not 1"
    assert world.refusal(world.handle, 1, 32) == "cuDeviceGet: invalid device ordinal"
    assert world.refusal(world.handle, 1 << 40, 32) == "there is no GPU 1099511627776"
    for size in (0, 33):
        assert world.refusal(world.handle, 0, size) == f"the memory has 32 bytes, not {size}"
    assert world.open_count() == 0


def test_a_handle_may_stand_for_the_rest_of_a_larger_block(world: World) -> None:
    handle = world.cuda.share(world.memory, offset=16)
    assert world.refusal(handle, 0, 17) == "the memory has 16 bytes, not 17"
    world.regions.cuda.register("r", handle, 0, 16)
    assert world.piece(4, 8).tensor(FP32, (2,)).array.tolist() == [5, 6]


def run(world: World, gpu: FakeGpu, places: Places, tensor: Tensor) -> tuple[AddsOne, InferResponse]:
    """What an instance on the GPU does with one request, and the response."""
    given: list[InferResponse | None] = []
    request = InferRequest("m", {"INPUT0": tensor}, lambda response, final: given.append(response))
    use_regions(request, places, world.regions)
    validate(request, SIGNATURE)
    instance = AddsOne(gpu)
    batch = Batch(SIGNATURE, [request], 1)
    instance.execute(batch)
    request.respond(batch.responses[0], True)
    (response,) = given
    assert response is not None
    return instance, response


def test_an_instance_on_the_gpu_takes_and_fills_regions_uncopied_by_the_host(world: World) -> None:
    world.register()
    places = Places(inputs={"INPUT0": Place("r", 8, 8)}, outputs={"OUTPUT0": Place("r", 24, 8)})
    gpu = FakeGpu()
    instance, response = run(world, gpu, places, Tensor(FP32, (1, 2), b""))
    (taken,) = instance.taken
    assert isinstance(taken, DeviceMemory)
    assert taken.address == world.memory.ctypes.data + 8
    assert (gpu.uploads, gpu.downloads) == (0, 0)
    assert world.memory.tolist() == [0, 1, 2, 3, 4, 5, 3, 4]
    assert isinstance(response.outputs["OUTPUT0"], PlacedTensor)
    assert world.cuda.calls.count("cuMemcpyDtoDAsync_v2") == 1
    assert world.cuda.stream == 2000  # a stream of its own, not one that waits for models


class _OfFramework:
    """An output that a framework has on the GPU, as it gives it to others."""

    def __init__(self, array: Array) -> None:
        self.streams: list[Any] = []
        self._memory = DeviceMemory(array.ctypes.data, array.shape, FP32, (CUDA, 0), array)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self._memory.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0


def test_an_output_of_any_framework_is_copied_on_the_gpu(world: World) -> None:
    world.register()
    elements = _OfFramework(np.array([7, 8], np.float32))
    world.piece(0, 8).put(DeviceTensor(FP32, (2,), elements, lambda: pytest.fail("it was copied"), "it"))
    assert world.memory.tolist() == [7, 8, 2, 3, 4, 5, 6, 7]
    assert elements.streams == [-1]


def test_an_output_that_gives_no_memory_away_is_an_error_with_both_sides(world: World) -> None:
    world.register()
    gone: Any = DeviceMemory(0, (2,), FP32, (CUDA, 0), None)
    tensor = DeviceTensor(FP32, (2,), gone, lambda: np.zeros(2), "output 'OUT' of model 'a'")
    tensor.elements = object()  # type: ignore[assignment]
    with pytest.raises(
        InternalError, match=r"^output 'OUT' of model 'a' cannot be copied into .* region 'r': "
    ):
        world.piece(0, 8).put(tensor)


def test_an_output_on_the_host_is_copied_there(world: World) -> None:
    world.register()
    world.piece(4, 8).put(Tensor.from_array(FP32, np.array([7, 8], np.float32)))
    assert world.memory.tolist() == [0, 7, 8, 3, 4, 5, 6, 7]


def test_strings_and_instances_on_cpus_get_copies(world: World) -> None:
    world.register()
    assert bytes(world.piece(0, 8).tensor(BYTES, (1,)).data) == world.memory[:2].tobytes()
    tensor = world.piece(4, 8).tensor(FP32, (2,))
    assert tensor.array.tolist() == [1, 2]
    tensor.array[:] = 0
    assert world.memory.tolist() == list(range(8))


def test_a_part_that_is_not_in_the_region_is_refused(world: World) -> None:
    world.register(size=16)
    for offset, size in ((16, 1), (0, 17), (8, 9), (-1, 4), (0, 0)):
        with pytest.raises(InvalidArgumentError, match=r"^Invalid offset"):
            world.piece(offset, size)


def test_a_region_in_use_is_closed_with_its_last_request(world: World) -> None:
    world.register()
    request = InferRequest("m", {"INPUT0": Tensor(FP32, (1, 2), b"")}, lambda response, final: None)
    use_regions(request, Places(inputs={"INPUT0": Place("r", 0, 8)}), world.regions)
    world.regions.cuda.unregister("r")
    with pytest.raises(NotFoundError, match="Unable to find shared memory region: 'r'"):
        world.piece(0, 8)
    assert world.open_count() == 1
    request.respond(InferResponse(), True)
    assert world.open_count() == 0
    world.register()
