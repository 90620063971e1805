"""tritonclient with tensors in shared memory, over HTTP and gRPC, against models of every kind."""

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from tests.frontends.shared_memory.support import (
    FLOAT_COUNT,
    SIZE,
    Client,
    Memory,
    grpc,
)
from tests.support.server import ServerProcess
from tests.support.waiting import wait_until

VALUES = np.arange(FLOAT_COUNT, dtype=np.float32)
SMALL = 4
"""Elements of a tensor that travels inside a message to a worker."""


Make = Callable[..., Memory]


@pytest.mark.parametrize("model", ["in_process", "python", "isolated", "pipeline", "cached", "calls"])
@pytest.mark.parametrize("count", [SMALL, FLOAT_COUNT])
def test_tensors_go_through_regions(client: Client, memory: Make, model: str, count: int) -> None:
    source, target = memory(values=VALUES), memory()
    tensor = client.input(client.register(source, "in"), count)
    output = client.output(client.register(target, "out"), SIZE)
    for factor in (1, 2):  # the second time all is mapped, and no cache has it
        source.array[:] = VALUES * factor
        result = client.infer(model, tensor, output)
        assert target.array[:count].tolist() == (VALUES[:count] * factor).tolist()
        assert not target.array[count:].any()
        if isinstance(result, grpcclient.InferResult):
            assert list(result.get_output("OUT").shape) == [count]
            assert list(result.get_response().raw_output_contents) == [b""]
        else:
            assert result.get_output("OUT") == {"name": "OUT", "datatype": "FP32", "shape": [count]}


@pytest.mark.parametrize("model", ["in_process", "python", "isolated", "pipeline", "cached"])
def test_output_may_come_in_the_response(client: Client, memory: Make, model: str) -> None:
    region = client.register(memory(values=VALUES), "in")
    result = client.infer(model, client.input(region, FLOAT_COUNT))
    assert np.array_equal(result.as_numpy("OUT"), VALUES)


@pytest.mark.parametrize("model", ["in_process", "python", "isolated", "pipeline", "cached"])
def test_input_may_come_in_the_request(client: Client, memory: Make, model: str) -> None:
    target = memory()
    tensor = client.module.InferInput("IN", [FLOAT_COUNT], "FP32")
    tensor.set_data_from_numpy(VALUES + 1)
    client.infer(model, tensor, client.output(client.register(target, "out"), SIZE))
    assert np.array_equal(target.array, VALUES + 1)


@pytest.mark.parametrize("model", ["in_process", "python", "isolated"])
def test_equal_requests_use_what_is_registered_under_the_names_now(
    client: Client, memory: Make, model: str
) -> None:
    tensor, output = client.input("in", FLOAT_COUNT), client.output("out", SIZE)
    for factor in (1, 2):
        source, target = memory(values=VALUES * factor), memory()
        client.register(source, "in")
        client.register(target, "out")
        for _ in range(2):
            target.array[:] = 0
            client.infer(model, tensor, output)
            assert np.array_equal(target.array, source.array)
        client.triton.unregister_system_shared_memory(name="out")
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'out'"):
            client.infer(model, tensor, output)
        client.triton.unregister_system_shared_memory(name="in")


@pytest.mark.parametrize("model", ["in_process", "python", "isolated"])
def test_offsets_count_from_the_regions_own(client: Client, memory: Make, model: str) -> None:
    source, target = memory(values=VALUES), memory()
    tensor = client.input(client.register(source, "in", offset=100), 1000, offset=20)
    client.infer(model, tensor, client.output(client.register(target, "out", offset=4), 4000, offset=8))
    assert np.array_equal(target.array[3:1003], VALUES[30:1030])
    assert not target.array[:3].any()
    assert not target.array[1003:].any()


@pytest.mark.parametrize("model", ["in_process", "python", "isolated"])
def test_one_region_takes_both(client: Client, memory: Make, model: str) -> None:
    both = memory(2 * SIZE)
    both.array[:FLOAT_COUNT] = VALUES
    region = client.register(both, "both")
    client.infer(model, client.input(region, FLOAT_COUNT), client.output(region, SIZE, SIZE))
    assert np.array_equal(both.array[FLOAT_COUNT:], VALUES)
    client.infer(model, client.input(region, FLOAT_COUNT), client.output(region, SIZE))
    assert np.array_equal(both.array[:FLOAT_COUNT], VALUES)


def test_regions_of_tritonclients_own_tools(client: Client) -> None:
    texts = np.array([b"shared", "grüß".encode()], object)
    serialized = serialize_byte_tensor(texts)
    size = len(serialized.item())
    source = shm.create_shared_memory_region("in", "/halimede-test-in", 4096)
    target = shm.create_shared_memory_region("out", "/halimede-test-out", 4096)
    try:
        shm.set_shared_memory_region(source, [serialized])
        client.triton.register_system_shared_memory("in", "/halimede-test-in", 4096)
        client.triton.register_system_shared_memory("out", "/halimede-test-out", 4096)
        client.infer("strings", client.input("in", 2, 0, "BYTES", size), client.output("out", 4096))
        assert shm.get_contents_as_numpy(target, np.object_, [2]).tolist() == texts.tolist()
    finally:
        shm.destroy_shared_memory_region(source)
        shm.destroy_shared_memory_region(target)


def test_strings_that_are_none_are_refused(client: Client, memory: Make) -> None:
    region = client.register(memory(values=1.0), "in")
    with pytest.raises(InferenceServerException, match="incomplete string data for inference input 'IN'"):
        client.infer("strings", client.input(region, 2, 0, "BYTES", 100))


@pytest.mark.parametrize("model", ["in_process", "python", "isolated"])
@pytest.mark.parametrize("room", [SMALL * 4 - 1, SIZE - 4])
def test_output_that_does_not_fit_is_an_error(client: Client, memory: Make, model: str, room: int) -> None:
    count = SMALL if room < SIZE // 2 else FLOAT_COUNT
    target = memory()
    tensor = client.input(client.register(memory(values=1), "in"), count)
    with pytest.raises(InferenceServerException) as error:
        client.infer(model, tensor, client.output(client.register(target, "out"), room))
    assert error.value.message() == (
        f"shared memory size specified with the request for output 'OUT' ({room} bytes) should be at least "
        f"{4 * count} bytes to hold the results"
    )
    assert not target.array.any()


def test_model_may_write_to_its_input_and_nobody_sees_it(client: Client, memory: Make) -> None:
    source, targets = memory(values=VALUES), [memory(), memory()]
    tensor = client.module.InferInput("IN", [1, FLOAT_COUNT], "FP32")
    tensor.set_shared_memory(client.register(source, "in"), SIZE)
    outputs = [client.output(client.register(target, f"out{n}"), SIZE) for n, target in enumerate(targets)]
    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):
            for target in targets:
                target.array[:] = 0
            # one batch, of the same bytes twice
            list(threads.map(lambda output: client.infer_apart("in_place", tensor, output), outputs))
            for target in targets:
                assert np.array_equal(target.array, VALUES + 1)
            assert np.array_equal(source.array, VALUES)


def test_input_that_a_model_keeps_does_not_change(client: Client, memory: Make) -> None:
    source = memory(values=VALUES)
    tensor = client.input(client.register(source, "in"), FLOAT_COUNT)
    kept = client.infer("keeps", tensor).as_numpy("OUT")
    source.array[:] = -1
    assert np.array_equal(client.infer("keeps", tensor).as_numpy("OUT"), kept)
    assert client.infer("python", tensor).as_numpy("OUT").tolist() == source.array.tolist()


def test_each_response_of_a_stream_goes_into_the_region(server: ServerProcess, memory: Make) -> None:
    client = grpc(server)
    source, target = memory(values=VALUES), memory()
    tensor = client.input(client.register(source, "in"), FLOAT_COUNT)
    output = client.output(client.register(target, "out"), SIZE)
    results: queue.Queue[tuple[grpcclient.InferResult | None, Exception | None]] = queue.Queue()
    client.triton.start_stream(lambda result, error: results.put((result, error)))
    client.triton.async_stream_infer("streams", [tensor], outputs=[output])
    for _ in range(2):
        result, error = results.get(timeout=60)
        assert error is None
        assert result is not None
        assert list(result.get_response().raw_output_contents) == [b""]
    assert np.array_equal(target.array, VALUES * 2)
    client.triton.async_stream_infer("python", [tensor], outputs=[output])
    result, error = results.get(timeout=60)
    assert error is None
    assert np.array_equal(target.array, VALUES)
    client.triton.async_stream_infer("python", [client.input("none", 4)])
    _, error = results.get(timeout=60)
    assert "Unable to find shared memory region: 'none'" in str(error)
    client.triton.stop_stream()
    client.close()


def test_cached_response_goes_into_the_region(client: Client, memory: Make) -> None:
    source, targets = memory(values=VALUES * 3), [memory(), memory()]
    tensor = client.input(client.register(source, "in"), FLOAT_COUNT)
    for number, target in enumerate(targets):
        client.infer("cached", tensor, client.output(client.register(target, f"out{number}"), SIZE))
        assert np.array_equal(target.array, VALUES * 3)


@pytest.mark.parametrize("all_at_once", [False, True])
def test_unregistered_region_stays_until_its_last_request_is_over(
    client: Client, memory: Make, tmp_path: Path, all_at_once: bool
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    source, target = memory(values=VALUES), memory()
    tensor = client.input(client.register(source, "in"), FLOAT_COUNT)
    output = client.output(client.register(target, "out"), SIZE)
    with ThreadPoolExecutor(1) as threads:
        parameters = {"begun": str(begun), "go": str(go)}
        running = threads.submit(client.infer_apart, "waits", tensor, output, parameters=parameters)
        wait_until(begun.exists, "the model to begin")
        client.triton.unregister_system_shared_memory(**({} if all_at_once else {"name": "in"}))
        client.triton.unregister_system_shared_memory(name="out")
        assert client.status() == ["in", "out"]
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'in'"):
            client.infer("python", tensor)
        with pytest.raises(InferenceServerException, match="shared memory region 'in' already in manager"):
            client.register(source, "in")
        source.path.unlink()  # which its owner may do when it has unregistered it
        go.touch()
        running.result(60)
    assert np.array_equal(target.array, VALUES + 1)
    wait_until(lambda: client.status() == [], "the regions to be released")


def test_worker_maps_a_region_once_and_until_it_is_unregistered(
    client: Client, server: ServerProcess, memory: Make
) -> None:
    source = memory()
    client.register(source, "in")
    client.register(memory(), "other")
    name = source.key[1:]

    def mappings(region: str) -> int:
        result = client.infer("mapped", client.input(region, FLOAT_COUNT), request_id=name)
        return int(result.as_numpy("OUT")[0])

    assert [mappings("in") for _ in range(3)] == [1, 1, 1]
    client.triton.unregister_system_shared_memory(name="in")
    wait_until(lambda: mappings("other") == 0, "the mapping to go")
    descriptors = Path(f"/proc/{server.process.pid}/fd")
    assert not any(name in str(each.readlink()) for each in descriptors.iterdir() if each.is_symlink())
