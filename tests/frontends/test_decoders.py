"""Large requests that are decoded by another process."""

import asyncio
import gc
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import orjson
import pytest

from halimede.codec.json_sizes import is_large
from halimede.codec.json_text import NestingError
from halimede.core.datatypes import BYTES, FP32
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, UnavailableError
from halimede.frontends.decoders import Decoders, most_processes
from halimede.frontends.http.answers import answer_later
from halimede.frontends.http.codec.request_plan import RequestPlan, read_plan
from halimede.frontends.http.transport.exchange import Exchange
from halimede.net.receiving import ReceiveBudget
from tests.support.loops import LoopThread
from tests.support.waiting import wait_until, wait_until_async

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


MIB = 1 << 20
NUMBERS = b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"data":[%b1]}]}' % (
    4 * MIB,
    b"1," * (4 * MIB - 1),
)
"""Eight megabytes of text that are decoded to four."""


def take_much(text: bytes) -> None:
    """Take more memory than there is."""
    bytearray(1 << 40)


def test_what_is_decoded_counts_until_nobody_uses_it(loop: LoopThread) -> None:
    budget = ReceiveBudget(64 * MIB)
    decoders = Decoders(budget)

    async def decode() -> Any:
        decoding = decoders.decode(read_plan, memoryview(NUMBERS), MAX)
        assert budget.kept == len(NUMBERS)
        return (await decoding).inputs[0][5]

    tensor = loop.run(decode())
    wait_until(lambda: 4 * MIB <= budget.kept < 5 * MIB, "the text to count no more")
    view = tensor.array[7:9]
    del tensor
    assert budget.kept >= 4 * MIB
    assert view.tolist() == [1, 1]
    del view
    wait_until(lambda: budget.kept == 0, "the tensor to count no more")


def test_requests_wait_for_memory_of_others_and_those_that_leave_wait_no_more(loop: LoopThread) -> None:
    budget = ReceiveBudget(32 * MIB)
    decoders = Decoders(budget)

    async def decode() -> tuple[Any, Any]:
        first = await decoders.decode(read_plan, NUMBERS, MAX)
        budget.keep(20 * MIB)
        second = asyncio.ensure_future(decoders.decode(read_plan, NUMBERS, MAX))
        third = decoders.decode(read_plan, NUMBERS, MAX)
        third.cancel()
        await wait_until_async(lambda: budget.waiting == 1, "the second to be decoded, and to wait")
        budget.release(20 * MIB)
        return first, await second

    plans = loop.run(decode())
    assert [plan.inputs[0][5].array.size for plan in plans] == [4 * MIB, 4 * MIB]
    del plans
    wait_until(lambda: budget.kept == 0, "nothing to count")
    assert read(loop, decoders, read_plan, document(), MAX).id == "1"


def test_a_client_that_leaves_while_its_request_waits_for_memory_frees_the_process(loop: LoopThread) -> None:
    budget = ReceiveBudget(16 * MIB)
    decoders = Decoders(budget)

    async def decode() -> None:
        first = await decoders.decode(read_plan, NUMBERS, MAX)
        budget.keep(12 * MIB)
        second = decoders.decode(read_plan, NUMBERS, MAX)
        await wait_until_async(lambda: budget.waiting == 1, "the second to be decoded, and to wait")
        second.cancel()
        assert (await decoders.decode(read_plan, document(), MAX)).id == "1"
        assert not budget.waiting
        budget.release(12 * MIB)
        del first

    loop.run(decode())
    wait_until(lambda: budget.kept == 0, "nothing to count")


class FakeExchange:
    """An exchange that is not answered."""

    def __init__(self) -> None:
        self.closed = False
        self.on_disconnect: Callable[[], None] = noop


def noop() -> None:
    """Do nothing."""


@pytest.mark.parametrize("leaves", [False, True])
def test_the_text_of_a_request_that_fails_is_freed_without_the_garbage_collector(
    loop: LoopThread, leaves: bool
) -> None:
    budget = ReceiveBudget(16 * MIB, wait_s=60 if leaves else 0.1)
    decoders = Decoders(budget)
    errors: list[str] = []

    def begin(exchange: FakeExchange) -> "weakref.ref[Any]":
        text = np.frombuffer(NUMBERS, np.uint8).copy()
        budget.keep_while(text, len(text))
        body = text.data
        answer_later(
            cast(Exchange, exchange),
            decoders.decode(read_plan, body, MAX),
            lambda plan: errors.append(f"decoded {len(body)} bytes to {plan}"),
            lambda _, error: errors.append(error.message),
        )
        return weakref.ref(text)

    async def decode() -> "weakref.ref[Any]":
        _other = await decoders.decode(read_plan, NUMBERS, MAX)
        budget.keep(12 * MIB)
        exchange = FakeExchange()
        freed = begin(exchange)
        if leaves:
            await wait_until_async(lambda: budget.waiting == 1, "it to be decoded, and to wait")
            exchange.closed = True
            exchange.on_disconnect()
        else:
            await wait_until_async(lambda: bool(errors), "it to be refused")
        budget.release(12 * MIB)
        return freed

    gc.collect()
    gc.disable()
    try:
        freed = loop.run(decode())
        wait_until(lambda: freed() is None and budget.kept == 0, "the text to be freed")
    finally:
        gc.enable()
    assert len(errors) == (0 if leaves else 1)
    assert all("--receive-memory-budget" in error for error in errors)


def test_a_request_without_room_is_refused(loop: LoopThread) -> None:
    budget = ReceiveBudget(16 * MIB, wait_s=0.1)
    decoders = Decoders(budget)
    first = read(loop, decoders, read_plan, NUMBERS, MAX)
    loop.call(budget.keep, 12 * MIB)
    with pytest.raises(UnavailableError, match="--receive-memory-budget"):
        read(loop, decoders, read_plan, NUMBERS, MAX)
    loop.call(budget.release, 12 * MIB)
    del first
    with pytest.raises(InvalidArgumentError, match="--receive-memory-budget"):
        read(loop, Decoders(ReceiveBudget(4 * MIB)), read_plan, NUMBERS, MAX)
    wait_until(lambda: budget.kept == 0, "nothing to count")


@pytest.mark.parametrize(
    ("function", "text", "arguments"),
    [
        (take_much, b"", ()),
        (read_plan, NUMBERS, (MAX,)),
        (read_plan, NUMBERS.replace(b"[1,", b"[NaN,").replace(b"UINT8", b"FP32"), (MAX,)),
        (read_plan, b'{"inputs":[{"data":[%b[]]}]}' % (b"[1]," * 1_500_000), (MAX,)),
        (read_plan, b'{"inputs":[{"data":[%b1]}]}' % (b'"ab",' * 2_500_000), (MAX,)),
        (len, bytes(256 * MIB), ()),
        (end, b"1" * 32 * MIB, (signal.SIGSEGV,)),
    ],
    ids=["python", "numbers", "NaN", "lists", "strings", "text", "crash"],
)
def test_a_request_that_needs_too_much_memory_is_told_so(
    loop: LoopThread, function: Any, text: bytes, arguments: tuple[Any, ...]
) -> None:
    memory = 128 * MIB
    decoders = Decoders(memory=memory)
    expected = f"^the request needs more memory than the {memory} bytes that decoding it may take"
    with pytest.raises(InvalidArgumentError, match=expected):
        read(loop, decoders, function, text, *arguments)
    assert read(loop, decoders, read_plan, document(), MAX).id == "1"
