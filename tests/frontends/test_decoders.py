"""Large requests that are decoded by another process."""

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pytest

from halimede.core.datatypes import BYTES, FP32
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError
from halimede.frontends.decoders import Decoders, most_processes
from halimede.frontends.http.codec.json_sizes import is_large
from halimede.frontends.http.codec.json_text import NestingError
from halimede.frontends.http.codec.request_plan import RequestPlan, read_plan
from tests.support.loops import LoopThread

MAX = 1 << 26


def end(text: bytes, how: int) -> None:
    """End the process that decodes."""
    os.kill(os.getpid(), how)


def fail(text: bytes) -> None:
    raise ZeroDivisionError(text.decode())


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    with LoopThread() as running:
        yield running


@pytest.fixture(scope="module")
def decoders() -> Decoders:
    return Decoders()


def read(loop: LoopThread, decoders: Decoders, function: Any, text: bytes, *arguments: Any) -> Any:
    async def wait() -> Any:
        return await decoders.decode(function, memoryview(text), *arguments)

    return loop.run(wait())


def document(**more: Any) -> bytes:
    numbers = [[1, 2.5], [-3, 4]]
    inputs = [
        {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": numbers},
        {"name": "t", "datatype": "BYTES", "shape": [2], "data": ["a", "ö"]},
        {"name": "b", "datatype": "INT8", "shape": [3], "parameters": {"binary_data_size": 3}},
        {"name": "s", "datatype": "INT8", "shape": [3], "parameters": {"shared_memory_region": "r"}},
    ]
    outputs = [{"name": "y", "parameters": {"binary_data": True}}]
    return orjson.dumps(
        {"id": "1", "inputs": inputs, "outputs": outputs, "parameters": {"priority": 2}, **more}
    )


def described(plan: RequestPlan) -> list[Any]:
    inputs = [
        (*entry[:5], None if entry[5] is None else (entry[5].shape, bytes(entry[5].data)))
        for entry in plan.inputs
    ]
    rest = (
        plan.id,
        plan.binary_bytes,
        plan.outputs,
        plan.output_plans,
        plan.unlisted,
        plan.parameters,
        plan.scheduling,
    )
    return [*inputs, *rest, plan.places]


def test_a_plan_is_the_same_as_read_here(loop: LoopThread, decoders: Decoders) -> None:
    plan = read(loop, decoders, read_plan, document(), MAX)
    here = read_plan(document(), MAX)
    assert str(described(plan)) == str(described(here))
    datatypes = [entry[1] for entry in plan.inputs]
    assert datatypes[0] is FP32
    assert datatypes[1] is BYTES
    assert not plan.inputs[0][5].array.flags.writeable


def test_elements_of_many_numbers_arrive(loop: LoopThread, decoders: Decoders) -> None:
    values = np.random.default_rng(0).random(300_000, np.float32)
    entry = {"name": "x", "datatype": "FP32", "shape": [300_000], "data": values.astype(float)}
    text = orjson.dumps({"inputs": [entry]}, option=orjson.OPT_SERIALIZE_NUMPY)
    plan = read(loop, decoders, read_plan, text, MAX)
    np.testing.assert_array_equal(plan.inputs[0][5].array, values)


@pytest.mark.parametrize(
    "text",
    [b"{", b'{"inputs": 5}', document(parameters=7), b'{"inputs": ' + b"[" * 200 + b"]" * 200 + b"}"],
)
def test_an_error_is_the_same_as_read_here(loop: LoopThread, decoders: Decoders, text: bytes) -> None:
    with pytest.raises(HalimedeError) as here:
        read_plan(text, MAX)
    with pytest.raises(HalimedeError) as there:
        read(loop, decoders, read_plan, text, MAX)
    assert there.value.message == here.value.message
    assert there.value.code is here.value.code
    assert issubclass(NestingError, InvalidArgumentError)


def test_any_other_exception_is_told(loop: LoopThread, decoders: Decoders) -> None:
    with pytest.raises(InternalError, match="ZeroDivisionError: here"):
        read(loop, decoders, fail, b"here")


def test_a_process_that_ends_fails_its_request_only(loop: LoopThread, decoders: Decoders) -> None:
    async def together() -> list[Any]:
        calls: list[asyncio.Future[Any]] = [
            decoders.decode(read_plan, document(), MAX),
            decoders.decode(end, b"", signal.SIGSEGV),
            decoders.decode(read_plan, document(), MAX),
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, crashed, last = loop.run(together())
    assert isinstance(crashed, InternalError)
    assert crashed.message == (
        "the process that decoded the request crashed with SIGSEGV, a fault in native code"
    )
    assert described(first) == described(last)
    assert read(loop, decoders, read_plan, document(), MAX).id == "1"


@pytest.mark.parametrize(
    ("text", "large"),
    [
        (b"1.25," * 60_000, False),
        (b"1.25," * 800_000, False),
        (b"1.25," * 850_000, True),
        (b'"text",' * 30_000, False),
        (b'"text",' * 40_000, True),
        (b"[1]," * 60_000, False),
        (b"[1]," * 70_000, True),
        (b"[" + b"1.25," * 1000 + b"]", False),
        ((b"[" + b"1.25," * 1000 + b"]") * 500, False),
    ],
)
def test_what_takes_long_is_read_elsewhere(text: bytes, large: bool) -> None:
    assert is_large(memoryview(text)) is large


COUNT = 25_000_000
"""More elements of an array than simdjson counts."""

ARRAYS = {
    "data": b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"data":[%b1]}]}',
    "data with another inside": b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"data":[%b[1]]}]}',
    "a member that nobody reads": b'{"inputs":[],"shape":[%d],"x":[%b1]}',
    "an array inside": b'{"inputs":[],"shape":[%d],"x":[[%b1]]}',
}


@pytest.mark.parametrize("where", ARRAYS)
def test_arrays_of_any_length_are_read(loop: LoopThread, decoders: Decoders, where: str) -> None:
    plan = read(loop, decoders, read_plan, ARRAYS[where] % (COUNT, b"1," * (COUNT - 1)), 1 << 28)
    assert [len(entry[5].data) for entry in plan.inputs] == ([COUNT] if where.startswith("data") else [])


@pytest.mark.parametrize(
    ("cores", "memory", "most"), [(1, 0, 1), (16, 0, 4), (16, 1 << 30, 1), (16, 5 << 30, 2), (2, 64 << 30, 2)]
)
def test_fewer_requests_are_decoded_at_a_time_where_there_is_less_memory(
    cores: int, memory: int, most: int
) -> None:
    assert most_processes(cores, memory) == most
