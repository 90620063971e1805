"""InvokeEndpointWithResponseStream, as boto3 decodes it."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError, EventStreamError
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.routing.event_stream import payload_part, stream_error
from tests.hosting.instances import Received, Reply
from tests.hosting.routing.serving import ENDPOINT, SHORT, one_instance, one_process
from tests.support.waiting import wait_until


def stream(client: Any, body: bytes = b"body", **more: Any) -> Any:
    return client.invoke_endpoint_with_response_stream(EndpointName=ENDPOINT, Body=body, **more)


def parts(answer: Any) -> Iterator[bytes]:
    with closing(answer["Body"]) as body:
        for event in body:
            yield event["PayloadPart"]["Bytes"]


def test_the_parts_come_as_the_instance_sends_them() -> None:
    received = [threading.Event() for _ in range(3)]

    def slowly(_: Received) -> Reply:
        def pieces() -> Iterator[bytes]:
            for number, each in enumerate(received):
                yield b"data: %d\n\n" % number
                assert each.wait(60)  # nothing comes after it before the client has it

        return Reply(
            200, pieces(), {"Content-Type": "text/event-stream", "X-Amzn-SageMaker-Custom-Attributes": "a"}
        )

    with one_instance() as (host, instance):
        instance.invoke = slowly
        answer = stream(host.client(), Accept="text/event-stream", ContentType="application/json")
        assert answer["ContentType"] == "text/event-stream"
        assert answer["InvokedProductionVariant"] == "AllTraffic"
        assert answer["CustomAttributes"] == "a"
        seen = []
        for part, each in zip(parts(answer), received, strict=True):
            seen.append(part)
            each.set()
        assert seen == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]
        assert instance.seen[0].headers["accept"] == "text/event-stream"
        assert instance.seen[0].headers["content-type"] == "application/json"
        wait_until(lambda: host.is_idle)


def test_an_answer_that_is_no_stream_is_one_all_the_same() -> None:
    with one_instance() as (host, _):
        body = bytes(range(256)) * 10_000
        assert b"".join(parts(stream(host.client(), body))) == body


def test_an_error_before_the_stream() -> None:
    with one_instance() as (host, instance):
        instance.invoke = lambda _: Reply(500, b"broken")
        with pytest.raises(ClientError) as caught:
            stream(host.client())
        assert caught.value.response["Error"]["Code"] == "ModelError"
        assert caught.value.response["OriginalStatusCode"] == 500


def test_a_stream_that_breaks() -> None:
    with one_instance() as (host, instance):
        instance.invoke = lambda _: Reply(200, [b"some"], breaks=True)
        received = parts(stream(host.client()))
        assert next(received) == b"some"
        with pytest.raises(EventStreamError, match="The response stream broke"):
            next(received)
        wait_until(lambda: host.meter.answers == [(500, True)])


def test_a_stream_that_takes_too_long() -> None:
    ended = threading.Event()

    def slowly(_: Received) -> Reply:
        def pieces() -> Iterator[bytes]:
            yield b"some"
            ended.wait(60)

        return Reply(200, pieces())

    with one_instance(SHORT) as (host, instance):
        instance.invoke = slowly
        answer = stream(host.client())
        with pytest.raises(EventStreamError, match=r"took more than 0.3 seconds"):
            list(parts(answer))
        wait_until(lambda: host.is_idle)
        ended.set()


def test_a_stream_is_under_way_until_its_last_byte() -> None:
    last = threading.Event()

    def slowly(_: Received) -> Reply:
        def pieces() -> Iterator[bytes]:
            yield b"first"
            last.wait(60)
            yield b"last"

        return Reply(200, pieces())

    with one_instance() as (host, instance):
        instance.invoke = slowly
        try:
            received = parts(stream(host.client()))
            assert next(received) == b"first"
            assert under_way(host) == 1
            # one that nobody reads to its end is over when its client leaves
            left = stream(host.client())
            wait_until(lambda: under_way(host) == 2)
            left["Body"].close()
            wait_until(lambda: under_way(host) == 1)
        finally:
            last.set()
        assert list(received) == [b"last"]
        wait_until(lambda: under_way(host) == 0)


def under_way(host: Any) -> int:
    """How many requests autoscaling sees."""
    return sum(host.loop.call(lambda: [target.outstanding for target in host.targets]))


def test_http_1_0_gets_a_stream_without_chunks() -> None:
    with one_instance() as (host, instance), host.raw() as client:
        instance.invoke = lambda _: Reply(200, [b"one", b"two"])
        client.send(f"POST /endpoints/{ENDPOINT}/invocations-response-stream HTTP/1.0\r\n\r\n".encode())
        _, _, body = client.read_to_end().partition(b"\r\n\r\n")
        buffer = EventStreamBuffer()
        buffer.add_data(body)
        assert b"".join(event.payload for event in buffer) == b"onetwo"


@one_process
@given(st.binary(max_size=70_000))
def test_any_part_is_decoded(data: bytes) -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(payload_part(data))
    [event] = buffer
    assert event.payload == data
    assert event.headers == {
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
        ":message-type": "event",
    }


@one_process
@given(st.text(max_size=300))
def test_any_error_is_decoded(text: str) -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(stream_error(text.encode(errors="replace").decode(), "StreamBroken"))
    [event] = buffer
    assert event.headers[":message-type"] == "exception"
    assert event.headers[":exception-type"] == "ModelStreamError"
    assert b'"ErrorCode":"StreamBroken"' in event.payload
