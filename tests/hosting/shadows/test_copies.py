"""What a shadow variant gets, and that the production variant's clients never notice it."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.shadows.copies import Copies
from halimede.hosting.shadows.tee import OVERHEAD_BYTES
from tests.hosting.instances import FakeInstance, Received, Reply
from tests.hosting.routing.serving import ENDPOINT, invoke, one_process
from tests.hosting.routing.test_taps import Watch
from tests.hosting.shadows.serving import Shadowed, shadowed, with_limits
from tests.support.waiting import wait_until

ANSWER = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}]}).encode()
OTHER = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [2.0]}]}).encode()


@contextmanager
def hanging(instance: FakeInstance) -> Iterator[None]:
    """The instance answers nothing until the end of the block."""
    over = threading.Event()

    def hang(_: Received) -> Reply:
        over.wait(60)
        return Reply(200, b"late")

    instance.invoke = hang
    try:
        yield
    finally:
        over.set()


def leave(_: Received) -> Reply:
    """Break off without an answer."""
    raise ConnectionResetError


def chunked(*pieces: bytes) -> bytes:
    """An invocation whose body comes in chunks."""
    return request("Transfer-Encoding: chunked") + b"".join(
        b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b"")
    )


def request(line: str) -> bytes:
    """The head of an invocation."""
    return f"POST /endpoints/{ENDPOINT}/invocations HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n".encode()


def answered(of: Shadowed) -> int:
    """How many copies have been answered."""
    return of.counts.answered


@pytest.mark.usefixtures("processes")
def test_every_request_is_copied_and_both_answers_are_compared() -> None:
    with shadowed() as of:
        assert of.shadow is not None
        of.primary.invoke = lambda _: Reply(200, ANSWER, {"Content-Type": "application/json"})
        of.shadow.invoke = lambda received: Reply(
            200, ANSWER if received.body == b"same" else OTHER, {"Content-Type": "application/json"}
        )
        for body in (b"same", b"other", b"same"):
            answer = invoke(of.host.client(), body, ContentType="text/csv", CustomAttributes="x=1")
            assert answer["Body"].read() == ANSWER
            assert answer["InvokedProductionVariant"] == "Production"
        wait_until(lambda: of.agreement.whole.compared == 3)
        assert sorted(each.body for each in of.shadow.seen) == [b"other", b"same", b"same"]
        for received in of.shadow.seen:
            assert (received.method, received.path) == ("POST", "/invocations")
            assert received.headers["content-type"] == "text/csv"
            assert received.headers["x-amzn-sagemaker-custom-attributes"] == "x=1"
        counts = of.counts
        assert (counts.sent, counts.answered, counts.model_errors, len(counts.model_ns)) == (3, 3, 0, 3)
        shadow = counts.shadow
        assert (shadow.lost, shadow.skipped, shadow.same_status, shadow.statuses) == (0, 0, 3, 3)
        assert len(shadow.primary_ns) == 3
        assert (shadow.whole.agreed, shadow.outputs["y"].agreed) == (2, 2)
        assert sorted(shadow.outputs["y"].absolute) == [0.0, 0.0, 1.0]


@pytest.mark.usefixtures("processes")
def test_large_bodies_and_bodies_in_chunks_are_copied_whole() -> None:
    body = bytes(range(256)) * 8_000
    with shadowed() as of, of.host.raw() as client:
        assert of.shadow is not None
        client.send(chunked(b"ab", b"c" * 300_000))
        assert client.read().status == 200
        invoke(of.host.client(), body)
        invoke(of.host.client(), b"")
        wait_until(lambda: answered(of) == 3)
        bodies = sorted((each.body for each in of.shadow.seen), key=len)
        assert bodies == [b"", b"ab" + b"c" * 300_000, body]
        wait_until(lambda: of.agreement.whole.agreed == 3)


def test_a_stream_is_copied_as_a_whole_request() -> None:
    with shadowed() as of:
        assert of.shadow is not None
        of.primary.invoke = lambda _: Reply(200, iter([b"one", b"two"]))
        of.shadow.invoke = lambda _: Reply(200, iter([b"o", b"netwo"]))
        answer = of.host.client().invoke_endpoint_with_response_stream(EndpointName=ENDPOINT, Body=b"x")
        with closing(answer["Body"]) as events:
            assert b"".join(event["PayloadPart"]["Bytes"] for event in events) == b"onetwo"
        wait_until(lambda: of.agreement.whole.agreed == 1)


def test_the_share_of_requests_is_the_ratio_of_the_weights() -> None:
    with shadowed(weight=0.25) as of:
        client = of.host.client()
        for _ in range(200):
            invoke(client)
        wait_until(lambda: answered(of) == of.counts.sent > 0)
        assert 20 < of.counts.sent < 90


@pytest.mark.parametrize(("weight", "copies"), [(0.0, 0), (5.0, 10)])
def test_no_request_is_copied_or_all_are(weight: float, copies: int) -> None:
    with shadowed(weight=weight) as of:
        for _ in range(10):
            invoke(of.host.client())
        wait_until(lambda: answered(of) == copies)
        assert of.agreement.lost == 0


def test_the_shadow_variant_cannot_be_asked_for() -> None:
    with shadowed() as of:
        with pytest.raises(ClientError, match="Variant Shadow not found for endpoint"):
            invoke(of.host.client(), TargetVariant="Shadow")
        invoke(of.host.client(), TargetVariant="Production")
        wait_until(lambda: answered(of) == 1)


@pytest.mark.usefixtures("processes")
def test_a_shadow_that_fails() -> None:
    with shadowed() as of:
        assert of.shadow is not None
        of.shadow.invoke = lambda _: Reply(500, b"broken")
        for _ in range(3):
            assert invoke(of.host.client())["Body"].read() == b"body"
        wait_until(lambda: answered(of) == 3)
        counts = of.counts
        assert (counts.model_errors, counts.client_errors) == (3, 3)
        assert (counts.shadow.statuses, counts.shadow.same_status, counts.shadow.whole.compared) == (3, 0, 0)


@pytest.mark.usefixtures("processes")
def test_a_shadow_that_hangs_holds_nothing_up() -> None:
    with shadowed() as of:
        assert of.shadow is not None
        with hanging(of.shadow):
            client = of.host.client()
            for number in range(20):
                assert invoke(client, b"%d" % number)["Body"].read() == b"%d" % number
            wait_until(lambda: len(of.shadow.seen) >= 2)  # type: ignore[union-attr]


@one_process
@pytest.mark.usefixtures("processes")
def test_a_shadow_that_hangs_loses_what_does_not_fit() -> None:
    with shadowed(with_limits(in_flight=2, waiting=3)) as of:
        assert of.shadow is not None
        with hanging(of.shadow):
            client = of.host.client()
            for _ in range(2):
                invoke(client)
            wait_until(lambda: len(of.shadow.seen) == 2)  # type: ignore[union-attr]
            for _ in range(18):
                invoke(client)
            assert of.agreement.lost == 15
            assert len(of.shadow.seen) == 2


@one_process
@pytest.mark.usefixtures("processes")
def test_a_copy_that_takes_too_long_is_given_up() -> None:
    with shadowed(with_limits(timeout_s=0.3)) as of:
        assert of.shadow is not None
        of.ready()
        with hanging(of.shadow):
            assert invoke(of.host.client())["Body"].read() == b"body"
            wait_until(lambda: answered(of) == 1)
            assert of.counts.model_errors == 1


@one_process
@pytest.mark.usefixtures("processes")
def test_copies_of_streams_have_the_time_of_streams() -> None:
    with shadowed(with_limits(timeout_s=0.2, stream_timeout_s=60.0)) as of:
        assert of.shadow is not None
        of.ready()
        release = threading.Event()

        def slowly(_: Received) -> Reply:
            release.wait(60)
            return Reply(200, b"body")

        of.shadow.invoke = slowly
        answer = of.host.client().invoke_endpoint_with_response_stream(EndpointName=ENDPOINT, Body=b"body")
        with closing(answer["Body"]) as events:
            assert b"".join(event["PayloadPart"]["Bytes"] for event in events) == b"body"
        wait_until(lambda: len(of.shadow.seen) == 1)  # type: ignore[union-attr]
        invoke(of.host.client())  # its copy has the usual time, and is given up
        wait_until(lambda: answered(of) == 1)
        release.set()
        wait_until(lambda: answered(of) == 2)
        assert of.counts.model_errors == 1


@one_process
@pytest.mark.usefixtures("processes")
def test_copies_that_wait_too_long_are_lost() -> None:
    with shadowed(with_limits(timeout_s=1.0, in_flight=0)) as of:
        for _ in range(4):
            invoke(of.host.client())
        wait_until(lambda: of.agreement.lost == 4)
        assert of.counts.sent == 0


@pytest.mark.usefixtures("processes")
def test_a_shadow_that_floods() -> None:
    with shadowed() as of:
        assert of.shadow is not None
        of.shadow.invoke = lambda _: Reply(200, (b"x" * (1 << 20) for _ in range(40)))
        for _ in range(2):
            assert invoke(of.host.client())["Body"].read() == b"body"
        wait_until(lambda: answered(of) == 2)
        assert (of.agreement.skipped, of.agreement.whole.compared) == (2, 0)


@pytest.mark.usefixtures("processes")
def test_a_shadow_that_breaks_off_or_is_gone() -> None:
    with shadowed() as of:
        assert of.shadow is not None
        of.shadow.invoke = lambda _: Reply(200, b"half", breaks=True)
        assert invoke(of.host.client())["Body"].read() == b"body"
        wait_until(lambda: answered(of) == 1)
        of.shadow.close()
        assert invoke(of.host.client())["Body"].read() == b"body"
        wait_until(lambda: answered(of) == 2)
        assert of.counts.model_errors == 2


@pytest.mark.usefixtures("processes")
def test_a_shadow_without_an_instance() -> None:
    with shadowed(shadows=0) as of:
        assert invoke(of.host.client())["Body"].read() == b"body"
        wait_until(lambda: of.agreement.lost == 1)
        assert of.counts.sent == 0


def test_an_answer_of_the_primary_that_is_too_large_is_not_compared() -> None:
    with shadowed(with_limits(answer_bytes=1000)) as of:
        of.primary.invoke = lambda _: Reply(200, b"x" * 2000)
        invoke(of.host.client())
        wait_until(lambda: answered(of) == 1)
        of.primary.invoke = lambda _: Reply(200, (b"x" * 600 for _ in range(4)))
        invoke(of.host.client())
        wait_until(lambda: answered(of) == 2)
        assert (of.agreement.skipped, of.agreement.whole.compared) == (2, 0)


def test_a_body_that_is_too_large_is_not_copied() -> None:
    with shadowed(with_limits(copy_bytes=1000)) as of:
        invoke(of.host.client(), b"x" * 1001)
        invoke(of.host.client(), b"x" * 1000)
        wait_until(lambda: answered(of) == 1)
        assert of.agreement.lost == 1


def test_without_memory_a_copy_is_lost() -> None:
    with shadowed(with_limits(held_bytes=OVERHEAD_BYTES + 2500, answer_bytes=1)) as of:
        invoke(of.host.client(), b"x" * 3000)
        wait_until(lambda: of.agreement.lost == 1)
        invoke(of.host.client(), b"x" * 2000)
        wait_until(lambda: answered(of) == 1)


def test_a_primary_that_fails_is_copied_and_one_whose_request_is_not_whole_is_not() -> None:
    with shadowed() as of:
        assert of.shadow is not None
        of.primary.invoke = lambda _: Reply(400, b"no")
        with pytest.raises(ClientError):
            invoke(of.host.client())
        wait_until(lambda: answered(of) == 1)
        assert (of.agreement.statuses, of.agreement.same_status) == (1, 0)
        of.shadow.invoke = lambda _: Reply(500)
        with pytest.raises(ClientError):
            invoke(of.host.client())
        wait_until(lambda: answered(of) == 2)
        assert (of.agreement.statuses, of.agreement.same_status) == (2, 1)
        with of.host.raw() as client:
            client.send(request("Content-Length: 9") + b"abc")
            wait_until(lambda: of.host.loop.call(lambda: of.host.invocations.count == 1))
        wait_until(lambda: of.host.is_idle)
        assert (of.counts.sent, of.agreement.lost) == (2, 0)


def test_a_client_that_does_not_wait_is_copied_all_the_same() -> None:
    with shadowed() as of, hanging(of.primary):
        with of.host.raw() as client:
            client.send(chunked(b"ab"))
            wait_until(lambda: bool(of.primary.seen))
        wait_until(lambda: answered(of) == 1)
        assert of.agreement.statuses == 0  # there is none to compare with


@one_process
@pytest.mark.usefixtures("processes")
def test_who_looks_at_the_shadows_invocations_is_told_of_copies() -> None:
    watch = Watch()
    with shadowed() as of:
        assert of.shadow is not None
        variant = of.host.variant.shadow
        assert variant is not None
        variant.observers = (watch,)
        of.shadow.invoke = lambda received: Reply(200, received.body * 2, {"Content-Type": "text/csv"})
        invoke(of.host.client(), b"ab")
        wait_until(lambda: answered(of) == 1)
        of.shadow.invoke = lambda _: Reply(500, b"no")
        invoke(of.host.client(), b"cd")
        wait_until(lambda: answered(of) == 2)
        of.shadow.close()
        invoke(of.host.client(), b"ef")
        wait_until(lambda: answered(of) == 3)
        first, *others = watch.seen
        assert (b"".join(first.request), first.complete, b"".join(first.response)) == (b"ab", 1, b"abab")
        assert first.head is not None
        assert (first.head.status, first.head.headers["content-type"]) == (200, "text/csv")
        assert [each.ends[0][0] for each in watch.seen] == [200, 424, 424]
        assert first.ends[0][1] > 0
        assert [(b"".join(each.request), each.head) for each in others] == [(b"cd", None), (b"ef", None)]


@one_process
@pytest.mark.usefixtures("processes")
def test_the_process_that_sends_copies_is_killed_and_another_one_takes_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with shadowed(with_limits(restart_s=0.1)) as of:
        assert of.shadow is not None
        with hanging(of.shadow):
            invoke(of.host.client())
            wait_until(lambda: len(of.shadow.seen) == 1)  # type: ignore[union-attr]
            first = of.copies.sender
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: of.agreement.lost == 1)
            assert f"process {first}, which sends copies" in caplog.text
        of.shadow.invoke = lambda received: Reply(200, received.body)
        assert invoke(of.host.client())["Body"].read() == b"body"
        wait_until(lambda: of.agreement.whole.agreed == 1)
        assert of.copies.sender != first


@one_process
@pytest.mark.usefixtures("processes")
def test_the_process_that_sends_copies_is_started_again_whatever_its_start_fails_by(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RuntimeError("unforeseen"), OSError(24, "Too many open files")]
    start = subprocess.Popen

    def fail(*arguments: Any, **settings: Any) -> "subprocess.Popen[bytes]":
        if failures:
            raise failures.pop(0)
        return start(*arguments, **settings)

    with shadowed(with_limits(restart_s=0.01)) as of:
        assert of.shadow is not None
        monkeypatch.setattr(subprocess, "Popen", fail)
        of.shadow.invoke = lambda received: Reply(200, received.body)
        assert invoke(of.host.client())["Body"].read() == b"body"
        wait_until(lambda: of.agreement.whole.agreed == 1)
        assert not failures
    assert "starting the process that sends copies to shadow variants failed" in caplog.messages
    assert any("cannot be started: [Errno 24] Too many open files" in message for message in caplog.messages)


@one_process
@pytest.mark.usefixtures("processes")
def test_the_process_that_sends_is_there_before_the_first_copy_unless_hardly_any_is_expected() -> None:
    with shadowed(weight=0.0) as of:
        invoke(of.host.client())
        assert of.copies.sender == 0
        copies = of.host.loop.call(Copies)
        variant = of.host.variant
        assert variant.shadow is not None
        of.host.loop.call(copies.observer, variant, variant.shadow)
        wait_until(lambda: copies.sender > 0)
        of.host.loop.run(copies.close())
        assert copies.sender == 0


@one_process
@pytest.mark.usefixtures("processes")
def test_the_process_that_sends_copies_makes_way_for_others() -> None:
    with shadowed() as of:
        invoke(of.host.client())
        wait_until(lambda: of.agreement.whole.agreed == 1)
        assert os.getpriority(os.PRIO_PROCESS, of.copies.sender) == 19


def test_an_instance_is_asked_so_many_copies_at_a_time() -> None:
    with shadowed(with_limits(concurrency=3)) as of:
        assert of.shadow is not None
        with hanging(of.shadow):
            client = of.host.client()
            for _ in range(10):
                invoke(client)
            wait_until(lambda: len(of.shadow.seen) == 3)  # type: ignore[union-attr]
            wait_until(lambda: of.counts.sent == 10)
        wait_until(lambda: answered(of) == 10)
        assert of.shadow.most_invoked == 3


def test_copies_arrive_in_the_order_in_which_the_invocations_ended() -> None:
    with shadowed(with_limits(concurrency=1)) as of:
        assert of.shadow is not None
        client = of.host.client()
        for number in range(30):
            invoke(client, b"%d" % number)
        wait_until(lambda: answered(of) == 30)
        assert [int(each.body) for each in of.shadow.seen] == list(range(30))


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("way", ["refuses", "breaks off"])
def test_an_instance_that_gives_no_answer_is_not_preferred_as_it_has_the_fewest_copies(way: str) -> None:
    with shadowed(shadows=2) as of:
        assert of.shadow is not None
        if way == "refuses":
            of.shadow.close()
        else:
            of.shadow.invoke = leave
        client = of.host.client()
        for number in range(1, 31):
            invoke(client)
            wait_until(lambda number=number: of.counts.answered == number, "the end of the copy")  # type: ignore[misc]
        counts = of.counts
        assert counts.server_errors + counts.client_errors <= 10
        assert counts.answered == 30
