"""Clients of a decoupled model's stream that do not read, over sockets, with the real transport."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc
import pytest

from halimede.engine.scheduling.flow import MAX_UNTAKEN
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest, ModelStreamInferResponse
from halimede.frontends.grpc.service import ServiceSettings, methods
from halimede.frontends.grpc.transport.connection import GrpcProtocol
from halimede.frontends.grpc.transport.limits import GrpcSettings
from tests.frontends.grpc.service_fakes import STREAM
from tests.frontends.producers import Producer, ProducerEngine, int32
from tests.support.loops import LoopThread


class Served:
    """A producer's server."""

    def __init__(self, producer: Producer, url: str) -> None:
        self.producer = producer
        self.url = url


@pytest.fixture(params=[0, 1], ids=["plain", "compressed"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with LoopThread() as loop:
        engine = ProducerEngine(loop)
        settings = ServiceSettings(compression=request.param)
        table = methods(engine, settings)  # type: ignore[arg-type]  # a fake
        connections: set[GrpcProtocol] = set()

        async def start() -> asyncio.Server:
            protocol = partial(GrpcProtocol, table, GrpcSettings(), engine.clock, connections)
            return await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)

        async def stop() -> None:
            server.close()
            for connection in list(connections):
                connection.abort()
            await server.wait_closed()
            engine.clock.close()

        server = loop.run(start())
        try:
            yield Served(engine.producer, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        finally:
            loop.run(stop())


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.http2.bdp_probe", 0)]
    compression = grpc.Compression.Gzip
    with grpc.insecure_channel(served.url, options, compression) as channel:
        yield channel


def open_stream(channel: grpc.Channel, *requests: ModelInferRequest) -> Any:
    stream = channel.stream_stream(
        STREAM,
        request_serializer=ModelInferRequest.SerializeToString,
        response_deserializer=ModelStreamInferResponse.FromString,
    )
    return stream(iter(requests), timeout=100)


def produce(identifier: str, count: int, size: int) -> ModelInferRequest:
    request = ModelInferRequest(model_name="producer", id=identifier)
    for name, value in (("COUNT", count), ("SIZE", size)):
        request.inputs.add(name=name, datatype="INT32", shape=[1])
        request.raw_input_contents.append(int32(value))
    return request


@pytest.mark.parametrize(("count", "size"), [(4_000, 200), (200, 50_000)])
def test_a_client_that_stops_reading_holds_its_model_back_and_no_other_stream(
    served: Served, channel: grpc.Channel, count: int, size: int
) -> None:
    producer = served.producer
    producer.expect("slow")
    stalled = open_stream(channel, produce("slow", count, size))
    assert producer.held["slow"].wait(60)
    made = producer.made["slow"]
    assert made < count
    other = open_stream(channel, produce("a", 50, size), produce("b", 50, size))
    assert sum(len(message.infer_response.outputs) for message in other) == 100
    assert producer.made["slow"] <= made + MAX_UNTAKEN + 1

    assert sum(len(message.infer_response.outputs) for message in stalled) == count
    assert producer.ended["slow"].wait(60)


def test_all_decoupled_requests_of_a_stream_are_held_back_and_go_on(
    served: Served, channel: grpc.Channel
) -> None:
    producer = served.producer
    producer.expect("a")
    stalled = open_stream(channel, *[produce(identifier, 1_500, 2_000) for identifier in "abc"])
    assert producer.held["a"].wait(60)
    assert sum(producer.made.copy().values()) < 4_500

    counts = dict.fromkeys("abc", 0)
    for message in stalled:
        counts[message.infer_response.id] += 1
    assert counts == dict.fromkeys("abc", 1_500)


def test_cancelling_a_stream_that_is_not_read_lets_its_model_go(
    served: Served, channel: grpc.Channel
) -> None:
    producer = served.producer
    producer.expect("slow")
    stalled = open_stream(channel, produce("slow", 20_000, 100))
    assert producer.held["slow"].wait(60)
    stalled.cancel()
    assert producer.ended["slow"].wait(60)
    assert producer.made["slow"] < 20_000


def test_losing_the_connection_of_a_stream_that_is_not_read_lets_its_model_go(
    served: Served, channel: grpc.Channel
) -> None:
    producer = served.producer
    producer.expect("slow")
    stalled = open_stream(channel, produce("slow", 20_000, 100))
    assert producer.held["slow"].wait(60)
    channel.close()
    assert stalled.code() is grpc.StatusCode.CANCELLED
    assert producer.ended["slow"].wait(60)
    assert producer.made["slow"] < 20_000
