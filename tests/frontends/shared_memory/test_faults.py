"""Regions that clients shorten, and requests that name wrong ones: at most those fail, or the worker that ran them."""

import json
import os
import sys
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.frontends.shared_memory.support import (
    FLOAT_COUNT,
    SIZE,
    Client,
    Memory,
    grpc,
    http,
    write_models,
)
from tests.python_models.support import FLOATS, answering, python_model
from tests.support.server import ServerProcess, running, start_server
from tests.support.waiting import wait_until

VALUES = np.arange(FLOAT_COUNT, dtype=np.float32)
Make = Callable[..., Memory]


@pytest.mark.parametrize("model", ["in_process", "python", "isolated", "pipeline", "cached"])
@pytest.mark.parametrize("mapped", [False, True])
def test_input_in_a_region_that_became_shorter_is_an_error(
    client: Client, memory: Make, model: str, mapped: bool
) -> None:
    source = memory(values=VALUES)
    tensor = client.input(client.register(source, "in"), FLOAT_COUNT)
    if mapped:
        client.infer(model, tensor)
    os.truncate(source.path, 4096)
    with pytest.raises(InferenceServerException) as error:
        client.infer(model, tensor)
    text = f"shared memory region 'in' has become shorter: its memory '{source.key}' has 4096 bytes, and {SIZE} are"
    assert text in error.value.message()
    assert client.infer(model, client.input("in", 1024)).as_numpy("OUT").tolist() == VALUES[:1024].tolist()
    os.truncate(source.path, SIZE)
    assert not client.infer(model, tensor).as_numpy("OUT")[1024:].any()


@pytest.mark.parametrize("model", ["in_process", "python", "isolated", "pipeline"])
def test_output_into_a_region_that_became_shorter_is_an_error(
    client: Client, memory: Make, model: str
) -> None:
    target = memory()
    tensor = client.input(client.register(memory(values=1), "in"), FLOAT_COUNT)
    output = client.output(client.register(target, "out"), SIZE)
    os.truncate(target.path, 4096)
    with pytest.raises(InferenceServerException, match="shared memory region 'out' has become shorter"):
        client.infer(model, tensor, output)
    assert target.path.stat().st_size == 4096


def test_region_that_is_cut_short_while_it_is_read_costs_a_worker_at_most(
    client: Client, memory: Make, tmp_path: Path
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    source = memory(values=VALUES)
    tensor = client.input(client.register(source, "in"), FLOAT_COUNT)
    parameters = {"begun": str(begun), "go": str(go)}
    with ThreadPoolExecutor(1) as threads:
        failing = threads.submit(client.infer_apart, "waits", tensor, parameters=parameters)
        wait_until(begun.exists, "the model to have its input")
        os.truncate(source.path, 0)
        go.touch()
        with pytest.raises(InferenceServerException) as error:
            failing.result(60)
    assert error.value.message().startswith(
        "Stub process 'waits_0' is not healthy. It crashed with SIGBUS: memory of a file that is too short"
    )
    assert client.infer("python", fresh(client, VALUES[:4])).as_numpy("OUT").tolist() == [0, 1, 2, 3]
    answer = client.infer("waits", fresh(client, VALUES[:4]), parameters=parameters)  # by the next process
    assert answer.as_numpy("OUT").tolist() == [1, 2, 3, 4]


def fresh(client: Client, values: np.ndarray) -> Any:
    """An input that comes with the request."""
    tensor = client.module.InferInput("IN", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    return tensor


@pytest.mark.parametrize("model", ["in_process", "python", "isolated"])
def test_output_without_room_in_memory_is_an_error(tmp_path: Path, model: str) -> None:
    """In a mount of its own, of 2 MiB, with a region of 8 MiB that has no memory yet."""
    write_models(tmp_path)
    serve = (
        f"mount -t tmpfs -o size=2m tmpfs /dev/shm && exec {sys.executable} -m halimede serve "
        f"--model-repository={tmp_path} --allow-client-shm=true --http-address=127.0.0.1 --http-port=0 "
        f"--allow-grpc=false --allow-metrics=false --model-control-mode=explicit --load-model={model}"
    )
    with running(["unshare", "-rm", "sh", "-c", serve], 1) as server:
        region = Path(f"/proc/{server.process.pid}/root/dev/shm/region")
        with region.open("wb") as file:
            file.truncate(8 << 20)
        client = http(server)
        client.triton.register_system_shared_memory("out", "region", 8 << 20)
        tensor = fresh(client, np.ones(1 << 20, np.float32))
        with pytest.raises(InferenceServerException) as error:
            client.infer(model, tensor, client.output("out", 8 << 20))
        assert error.value.message() == (
            "cannot write to shared memory region 'out': No space left on device"
        )
        small = fresh(client, np.ones(4, np.float32))
        os.truncate(region, 0)
        os.truncate(region, 8 << 20)
        client.infer(model, small, client.output("out", 8 << 20))
        assert region.read_bytes()[:16] == np.ones(4, np.float32).tobytes()
        client.triton.close()


def test_clients_may_register_nothing_unless_a_flag_allows_it(tmp_path: Path) -> None:
    disabled = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    (tmp_path / "repository").mkdir()
    with start_server(tmp_path / "repository") as server:
        for client in (http(server), grpc(server)):
            triton = client.triton
            calls: tuple[Callable[[], object], ...] = (
                partial(triton.register_system_shared_memory, "r", "/none", 4),
                partial(triton.unregister_system_shared_memory, "r"),
                partial(triton.register_cuda_shared_memory, "r", b"AA==", 0, 4),
                triton.unregister_cuda_shared_memory,
            )
            for call in calls:
                with pytest.raises(InferenceServerException) as error:
                    call()
                assert error.value.message() == disabled
            assert client.status() == []
            triton.close()


def test_restricted_calls_need_their_header(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    flags = ("--http-restricted-api=shared-memory:key=v", "--grpc-restricted-protocol=shared-memory:key=v")
    with start_server(tmp_path / "repository", "--allow-client-shm=true", *flags) as server:
        for client, header in ((http(server), "key"), (grpc(server), "triton-grpc-protocol-key")):
            with pytest.raises(InferenceServerException, match="is restricted, expecting header"):
                client.status()
            status = client.triton.get_system_shared_memory_status(headers={header: "v"})
            assert not getattr(status, "regions", status)
            client.triton.close()


def test_sagemakers_port_takes_tensors_from_regions_too(tmp_path: Path, memory: Make) -> None:
    python_model(tmp_path, "python", answering("x"), FLOATS)
    with start_server(tmp_path, "--allow-client-shm=true", "--allow-sagemaker=true") as server:
        check_both_ports(server, memory)


def check_both_ports(server: ServerProcess, memory: Make) -> None:
    client = http(server)
    source, target = memory(values=VALUES), memory()
    client.register(source, "in")
    client.register(target, "out")
    place = {"shared_memory_byte_size": SIZE}
    body = {
        "inputs": [
            {
                "name": "IN",
                "shape": [FLOAT_COUNT],
                "datatype": "FP32",
                "parameters": {"shared_memory_region": "in", **place},
            }
        ],
        "outputs": [{"name": "OUT", "parameters": {"shared_memory_region": "out", **place}}],
    }
    for url in (f"{server.http}/v2/models/python/infer", f"{server.sagemaker}/invocations"):
        target.array[:] = 0
        with urllib.request.urlopen(f"http://{url}", json.dumps(body).encode()) as response:
            answer = json.load(response)
        assert answer["outputs"] == [{"name": "OUT", "datatype": "FP32", "shape": [FLOAT_COUNT]}]
        assert np.array_equal(target.array, VALUES)
    client.close()
