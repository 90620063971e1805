"""What an observer is told of invocations, and that these go on whatever it is told."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.routing.taps import Observer
from halimede.http1.head import Head
from halimede.http1.upstream import ResponseHead
from tests.hosting.http.serving import chunked
from tests.hosting.instances import FakeInstance, Received, Reply
from tests.hosting.routing.serving import (
    ENDPOINT,
    Runtime,
    instances,
    invoke,
    one_process,
    runtime,
    variant_route,
)
from tests.support.waiting import wait_until

pytestmark = one_process

PATH = f"/endpoints/{ENDPOINT}/invocations".encode()


@dataclass
class Recorder:
    """Writes down what it is told of one invocation (`Tap`)."""

    request: list[bytes] = field(default_factory=list)
    complete: int = 0
    head: ResponseHead | None = None
    response: list[bytes] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)

    def request_data(self, data: bytes, *, complete: bool) -> None:
        assert not self.complete
        self.request.append(data)
        self.complete += complete

    def response_begun(self, head: ResponseHead) -> None:
        assert self.head is None
        self.head = head

    def response_data(self, data: bytes) -> None:
        assert self.head is not None
        self.response.append(data)

    def ended(self, status: int, model_ns: int) -> None:
        self.ends.append((status, model_ns))


@dataclass
class Watch:
    """Wants to be told of all invocations (`Observer`)."""

    seen: list[Recorder] = field(default_factory=list)
    streamed: list[bool] = field(default_factory=list)

    def observe(self, head: Head, *, streamed: bool) -> Recorder:
        assert head.path.startswith("/endpoints/")
        self.streamed.append(streamed)
        self.seen.append(Recorder())
        return self.seen[-1]


class Nothing:
    """Wants to be told of none (`Observer`)."""

    def observe(self, head: Head, *, streamed: bool) -> None:
        """Leave it out."""


@contextmanager
def observed(
    *observers: Observer, settings: InvocationSettings | None = None
) -> Iterator[tuple[Runtime, FakeInstance]]:
    with instances(1) as [instance]:
        variant = variant_route("AllTraffic", [instance])
        variant.observers = observers
        with runtime(variant, settings=settings) as host:
            yield host, instance


def test_both_bodies_are_told_whole_and_in_order() -> None:
    body = bytes(range(256)) * 40_000
    watch, other = Watch(), Watch()
    with observed(watch, Nothing(), other) as (host, _):
        answer = invoke(host.client(), body, ContentType="application/x-mine")
        assert answer["Body"].read() == body
        for [recorder] in (watch.seen, other.seen):
            assert b"".join(recorder.request) == b"".join(recorder.response) == body
            assert recorder.complete == 1
            assert recorder.head is not None
            assert recorder.head.headers["content-type"] == "application/x-mine"
            [(status, model_ns)] = recorder.ends
            assert status == 200
            assert model_ns > 0
        assert watch.streamed == [False]


def test_a_body_that_comes_in_chunks() -> None:
    watch = Watch()
    with observed(watch) as (host, _), host.raw() as client:
        body = b"ab" + b"c" * 100_000
        client.send(chunked(body, [2]).replace(b"POST /", b"POST " + PATH, 1))
        assert client.read().status == 200
        assert b"".join(watch.seen[0].request) == body
        assert watch.seen[0].complete == 1


def test_the_parts_of_a_stream_are_told_as_the_instance_sends_them() -> None:
    watch = Watch()
    with observed(watch) as (host, instance):
        instance.invoke = lambda _: Reply(200, iter([b"one", b"two"]), {"Content-Type": "text/plain"})
        answer = host.client().invoke_endpoint_with_response_stream(EndpointName=ENDPOINT, Body=b"x")
        with closing(answer["Body"]) as events:
            assert b"".join(event["PayloadPart"]["Bytes"] for event in events) == b"onetwo"
        wait_until(lambda: host.is_idle)
        [recorder] = watch.seen
        assert b"".join(recorder.response) == b"onetwo"
        assert recorder.ends[0][0] == 200
        assert watch.streamed == [True]


def test_an_error_of_the_model_is_told_by_its_status_only() -> None:
    watch = Watch()
    with observed(watch) as (host, instance):
        instance.invoke = lambda _: Reply(400, b"no")
        with pytest.raises(ClientError):
            invoke(host.client())
        [recorder] = watch.seen
        assert b"".join(recorder.request) == b"body"
        assert (recorder.head, recorder.ends[0][0]) == (None, 424)


def test_a_client_that_does_not_wait() -> None:
    watch, release = Watch(), threading.Event()

    def slowly(_: Received) -> Reply:
        release.wait(60)
        return Reply(200, b"late")

    with observed(watch) as (host, instance):
        instance.invoke = slowly
        with host.raw() as client:
            client.send(chunked(b"ab", []).replace(b"POST /", b"POST " + PATH, 1))
            wait_until(lambda: bool(instance.seen))
        wait_until(lambda: bool(watch.seen[0].ends))
        release.set()
        assert watch.seen[0].ends[0][0] == 499


def test_a_request_that_no_instance_can_take() -> None:
    watch = Watch()
    with observed(watch) as (host, _):
        for target in host.targets:
            target.draining = True
        with pytest.raises(ClientError):
            invoke(host.client())
        [recorder] = watch.seen
        assert (recorder.request, recorder.ends) == ([], [(503, 0)])
