"""Requests of jobs to instances on real sockets: answers of any size, instances that hang, break off or go."""

import asyncio
import io
import threading
from collections.abc import Iterator

import pytest

from halimede.hosting.routing.table import Target
from halimede.hosting.transform.dependencies import execution_parameters
from halimede.hosting.transform.exchange import exchange, exchange_stream
from halimede.hosting.transform.failures import TransformError, client_error
from halimede.hosting.transform.lanes import Lane, Lanes
from halimede.http1.client import CallError
from halimede.http1.upstream import UpstreamPool
from tests.hosting.control.fakes import on_loop
from tests.hosting.instances import FakeInstance, Received, Reply, fake_instance
from tests.hosting.transform.fakes import ROUTE
from tests.support.waiting import wait_until_async

PIECE = bytes(range(256)) * 4096


@pytest.fixture
def instance() -> Iterator[FakeInstance]:
    with fake_instance() as running:
        yield running


def lane_to(instance: FakeInstance) -> Lane:
    target = Target("i", UpstreamPool("127.0.0.1", instance.port))
    return Lane(target, asyncio.get_running_loop().create_future())


async def ask(lane: Lane, body: bytes, timeout_s: float = 20.0) -> tuple[int, bytes]:
    return await exchange(lane, {"Content-Type": "text/csv", "Accept": "application/json"}, body, timeout_s)


async def stream(lane: Lane, pieces: list[bytes], out: io.BytesIO) -> tuple[int, bytes]:
    left = [*pieces]
    return await exchange_stream(lane, {}, lambda _: left.pop(0) if left else b"", out, 20.0)


def test_payloads_are_posted_to_invocations(instance: FakeInstance) -> None:
    @on_loop
    async def post() -> None:
        lane = lane_to(instance)
        assert await ask(lane, b"1,2\n") == (200, b"1,2\n")
        assert await ask(lane, PIECE * 3) == (200, PIECE * 3)
        lane.target.pool.close()

    post()
    first, _ = instance.seen
    assert (first.method, first.path, first.body) == ("POST", "/invocations", b"1,2\n")
    assert (first.headers["content-type"], first.headers["accept"]) == ("text/csv", "application/json")


def test_errors_keep_their_beginning(instance: FakeInstance) -> None:
    instance.invoke = lambda _: Reply(400, b"x" * 100_000)

    @on_loop
    async def post() -> None:
        lane = lane_to(instance)
        assert await ask(lane, b"1") == (400, b"x" * 65_536)
        assert await stream(lane, [b"1"], io.BytesIO()) == (400, b"x" * 65_536)
        lane.target.pool.close()

    post()


def test_an_instance_that_hangs(instance: FakeInstance) -> None:
    gate = threading.Event()

    def hang(_: Received) -> Reply:
        assert gate.wait(60)
        return Reply()

    instance.invoke = hang

    @on_loop
    async def post() -> None:
        lane = lane_to(instance)
        with pytest.raises(TimeoutError):
            await ask(lane, b"1", timeout_s=0.1)
        asking = asyncio.ensure_future(ask(lane, b"1"))
        await wait_until_async(lambda: len(instance.seen) == 2, "the second request")
        lane.lost.set_result(None)
        with pytest.raises(CallError, match="the instance has ended"):
            await asking
        gate.set()

    post()


def test_an_instance_that_breaks_off(instance: FakeInstance) -> None:
    instance.invoke = lambda _: Reply(200, b"some", breaks=True)

    @on_loop
    async def post() -> None:
        lane = lane_to(instance)
        with pytest.raises(CallError, match="closed before the response was complete"):
            await ask(lane, b"1")
        with pytest.raises(CallError, match="closed before the response was complete"):
            await stream(lane, [b"1"], io.BytesIO())

    post()


def test_an_instance_that_is_not_there() -> None:
    with fake_instance() as gone:
        pass

    @on_loop
    async def post() -> None:
        with pytest.raises(CallError, match="it accepts no connection"):
            await ask(lane_to(gone), b"1")

    post()


def test_objects_of_any_size_go_both_ways_in_chunks(instance: FakeInstance) -> None:
    instance.invoke = lambda received: Reply(200, iter([received.body[:1000], *[PIECE] * 8]))

    @on_loop
    async def post() -> None:
        lane = lane_to(instance)
        out = io.BytesIO()
        assert await stream(lane, [PIECE] * 8, out) == (200, b"")
        assert out.getvalue() == PIECE[:1000] + PIECE * 8
        assert await stream(lane, [], io.BytesIO()) == (200, b"")
        lane.target.pool.close()

    post()
    assert instance.seen[0].headers["transfer-encoding"] == "chunked"
    assert instance.seen[0].body == PIECE * 8


def test_an_object_that_cannot_be_read_on(instance: FakeInstance) -> None:
    @on_loop
    async def post() -> None:
        lane = lane_to(instance)
        pieces = iter([b"1"])

        def read(_: int) -> bytes:
            for piece in pieces:
                return piece
            raise client_error("it is broken")

        with pytest.raises(TransformError, match="it is broken"):
            await exchange_stream(lane, {}, read, io.BytesIO(), 20.0)

    post()


def test_what_a_model_says_of_how_it_likes_its_requests(instance: FakeInstance) -> None:
    @on_loop
    async def get() -> None:
        lanes = Lanes(1, 1.0)
        assert await execution_parameters(lanes) == {}
        target = Target("i", UpstreamPool("127.0.0.1", instance.port))
        lanes.joined(ROUTE, target)
        for reply, found in (
            (Reply(200, b'{"MaxPayloadInMB": 3}'), {"MaxPayloadInMB": 3}),
            (Reply(404, b'{"MaxPayloadInMB": 3}'), {}),
            (Reply(200, b"no"), {}),
            (Reply(200, b"[3]"), {}),
            (Reply(200, b"some", breaks=True), {}),
        ):
            instance.invoke = lambda _, reply=reply: reply  # type: ignore[misc]
            assert await execution_parameters(lanes) == found
        target.pool.close()

    get()
    assert instance.paths("GET") == ["/execution-parameters"] * 5
