"""The queue: it survives its process, expires what is too old, and answers each request once, whatever happens."""

import asyncio
import json
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from halimede.core.clock import WallClock
from halimede.hosting.asynchronous.journal import Journal
from halimede.hosting.asynchronous.queue import Queue
from halimede.hosting.asynchronous.requests import AsyncRequest
from halimede.hosting.control.database import DatabaseError
from halimede.hosting.specs import AsyncSpec
from tests.hosting.asynchronous.serving import ENDPOINT, NOON, AsyncHost, async_host, variant
from tests.hosting.control.fakes import on_loop
from tests.hosting.instances import Received, Reply, fake_instance
from tests.support.waiting import wait_until


def test_requests_are_worked_on_by_the_next_process(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        route = host.publish_route()
        answers = [host.invoke(b"%d" % number) for number in range(30)]
        host.restart()
        assert host.backlog == 30
        host.join(route, instance)
        host.settle()
        assert [host.object(each["OutputLocation"]) for each in answers] == [b"%d" % n for n in range(30)]
        assert sorted(int(each.body) for each in instance.seen) == list(range(30))
        assert len(host.notices) == 30


def test_long_queue_is_read_in_parts(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        route = host.publish_route()
        count = 1500

        async def fill() -> None:
            find = host.table.find(*ENDPOINT)
            assert find is not None
            await asyncio.gather(*(host.asynchronous.keep(_request(host, n)) for n in range(1, count + 1)))

        host.loop.run(fill())
        assert host.backlog == count
        host.join(route, instance)
        host.settle()
        assert sorted(int(each.body) for each in instance.seen) == list(range(1, count + 1))
        assert len(host.keys("out/")) == count


def _request(host: AsyncHost, seq: int, lifetime_s: float = 1000.0) -> AsyncRequest:
    now = host.clock()
    return AsyncRequest(
        seq, ENDPOINT, f"id-{seq}", now, now + lifetime_s, 60, f"s3://results/out/{seq}.out",
        f"s3://results/errors/{seq}-error.out", True, "", {}, b"%d" % seq,
    )  # fmt: skip


def test_request_that_was_answered_before_its_process_was_killed_is_not_run_again(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        route = host.publish_route()
        done, failed = host.invoke(b"x"), host.invoke(b"y")
        left = host.invoke(b"z")
        # as if the process had been killed when the objects had been written, and nothing else
        host.put(done["OutputLocation"].removeprefix("s3://results/"), b"the first answer")
        host.put(failed["FailureLocation"].removeprefix("s3://results/"), b"{}")
        host.restart()
        host.join(route, instance)
        host.settle()
        assert [each.body for each in instance.seen] == [b"z"]
        assert host.object(done["OutputLocation"]) == b"the first answer"
        assert not host.exists(failed["OutputLocation"])
        assert host.object(left["OutputLocation"]) == b"z"
        statuses = {json.loads(each.text)["inferenceId"]: json.loads(each.text) for each in host.notices}
        assert len(host.notices) == 3
        assert statuses[done["InferenceId"]]["invocationStatus"] == "Completed"
        assert statuses[failed["InferenceId"]]["failureReason"] == f"see {failed['FailureLocation']}"


def test_request_that_was_answered_before_its_process_was_killed_does_not_expire(tmp_path: Path) -> None:
    with async_host(tmp_path, now=NOON) as host:
        host.publish_route()
        done, waiting = (host.invoke(b"x", RequestTTLSeconds=60) for _ in range(2))
        host.put(done["OutputLocation"].removeprefix("s3://results/"), b"the first answer")
        host.restart()
        host.tick(61.0)
        host.settle()
        assert not host.exists(done["FailureLocation"])
        assert host.exists(waiting["FailureLocation"])
        statuses = {json.loads(each.text)["inferenceId"]: json.loads(each.text) for each in host.notices}
        assert statuses[done["InferenceId"]]["invocationStatus"] == "Completed"
        assert statuses[waiting["InferenceId"]]["failureReason"].startswith("RequestExpired")


def test_request_with_a_name_of_its_own_is_run_again(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        route = host.publish_route()
        host.put("out/mine", b"of another request")
        answer = host.invoke(b"x", Filename="mine")
        host.restart()
        host.join(route, instance)
        host.settle()
        assert host.object(answer["OutputLocation"]) == b"x"


def test_requests_of_endpoints_that_are_not_there_are_dropped_at_the_start(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route()
        host.invoke(b"x")
        host.loop.run(host.asynchronous.stop())
        host.endpoints = []
        host.loop.run(host.begin())
        host.restart()
        host.publish_route(instance)
        host.invoke(b"y")
        host.settle()
        assert [each.body for each in instance.seen] == [b"y"]


def test_request_expires_without_instances(tmp_path: Path) -> None:
    with async_host(tmp_path, now=NOON) as host:
        host.publish_route()
        answers = [host.invoke(b"x", RequestTTLSeconds=60 + number) for number in (0, 100, 1)]
        host.tick(59.5)
        assert host.backlog == 3
        host.tick(2)
        wait_until(lambda: host.backlog == 1, "the end of two requests")
        for number in (0, 2):
            document = json.loads(host.object(answers[number]["FailureLocation"]))
            assert document["ErrorCode"] == "RequestExpired"
            assert f"it may wait for {60 + number // 2}" in document["Message"]
        assert host.metric("ExpiredRequests") == (2, 2)
        host.settle_notices()
        assert len(host.notices) == 2


def test_request_that_waits_for_a_place_expires_when_the_last_instance_has_gone(tmp_path: Path) -> None:
    with async_host(tmp_path, now=NOON) as host, fake_instance() as instance:
        asked, over = threading.Event(), threading.Event()

        def hold(received: Received) -> Reply:
            asked.set()
            over.wait(60)
            return Reply(200, received.body)

        instance.invoke = hold
        route = host.publish_route(spec=AsyncSpec("s3://results/out", "s3://results/errors", 1))
        target = host.join(route, instance)
        first = host.invoke(b"first")
        assert asked.wait(60)
        # an input that is an object is read ahead, so this request is no longer only in the queue
        late = host.invoke(InputLocation=host.put("in", b"late"), RequestTTLSeconds=60)
        wait_until(lambda: host.metric("RequestDownloadLatency") is not None, "the input")
        host.leave(route, target)
        over.set()
        assert host.object(first["OutputLocation"]) == b"first"
        host.tick(61)
        assert json.loads(host.object(late["FailureLocation"]))["ErrorCode"] == "RequestExpired"
        host.settle()
        assert len(instance.seen) == 1


def test_request_that_is_too_old_when_there_is_an_instance_is_not_run(tmp_path: Path) -> None:
    with async_host(tmp_path, now=NOON) as host, fake_instance() as instance:
        route = host.publish_route()
        answer = host.invoke(b"x", RequestTTLSeconds=60)
        host.now = NOON + 61
        host.join(route, instance)
        assert b"RequestExpired" in host.object(answer["FailureLocation"])
        assert instance.seen == []


@pytest.mark.parametrize("jump", [1e8, -1e8])
def test_setting_the_clock_expires_no_request_and_each_expires_in_time(tmp_path: Path, jump: float) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        system, steady = NOON, 0.0
        host.real_time = WallClock(lambda: system, lambda: steady).now
        route = host.publish_route()
        early = host.invoke(b"early", RequestTTLSeconds=60)
        late = host.invoke(b"late", RequestTTLSeconds=600)
        system += jump
        host.tick()
        assert host.backlog == 2
        steady += 62
        host.tick()
        assert b"RequestExpired" in host.object(early["FailureLocation"])
        host.join(route, instance)
        assert host.object(late["OutputLocation"]) == b"late"


def test_many_expired_requests_behind_the_first_ones(tmp_path: Path) -> None:
    with async_host(tmp_path, now=NOON) as host, fake_instance() as instance:
        route = host.publish_route()

        async def fill() -> None:
            lifetimes = [1000.0 if number % 3 else 10.0 for number in range(1, 1801)]
            every = (_request(host, n, lifetime) for n, lifetime in enumerate(lifetimes, 1))
            await asyncio.gather(*(host.asynchronous.keep(each) for each in every))

        host.loop.run(fill())
        host.now = NOON + 11

        def is_short() -> bool:
            host.tick()
            return host.backlog == 1200

        wait_until(is_short, "the end of all requests that are too old")
        host.join(route, instance)
        host.settle()
        assert sorted(int(each.body) for each in instance.seen) == [n for n in range(1, 1801) if n % 3]
        assert len(host.keys("errors/")) == 600


def test_bucket_that_comes_back_gets_the_result(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.objects.unwritable = {"/out/": 2}
        host.publish_route(instance)
        answer = host.invoke(b"x")
        assert host.object(answer["OutputLocation"]) == b"x"
        host.settle()
        assert host.metric("ResponseUploadFailures") is None
        assert len(instance.seen) == 1


def test_bucket_that_is_away_is_an_upload_failure(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        host.publish_route(
            instance, spec=AsyncSpec("s3://vanished/out", "s3://results/errors", error_topic="t")
        )
        answer = host.invoke(b"x")
        document = json.loads(host.object(answer["FailureLocation"]))
        assert "vanished" in document["Message"]
        host.settle()
        assert host.metric("ResponseUploadFailures") == (1, 1)
        assert len(instance.seen) == 1
        [notice] = host.notices
        assert "there is no such bucket" in json.loads(notice.text)["failureReason"]


def test_errors_that_cannot_be_written_are_told_nonetheless(tmp_path: Path) -> None:
    with async_host(tmp_path) as host, fake_instance() as instance:
        instance.invoke = lambda _: Reply(500, b"broken")
        host.publish_route(instance, spec=AsyncSpec("s3://gone", "s3://gone", error_topic="t"))
        host.invoke(b"x")
        host.settle()
        assert (host.metric("InvocationFailures"), host.metric("ResponseUploadFailures")) == ((1, 1), (1, 1))
        assert "Received server error (500)" in json.loads(host.notices[0].text)["failureReason"]


def test_metrics_are_those_of_sagemaker(tmp_path: Path) -> None:
    with async_host(tmp_path, now=NOON) as host, fake_instance() as instance:
        route = host.publish_route()
        for number in range(6):
            host.invoke(InputLocation=host.put(f"in/{number}", b"x"))
        host.tick(10)
        assert host.metric("ApproximateBacklogSize", "") == (6, 1)
        assert host.metric("ApproximateBacklogSizePerInstance", "") == (6, 1)
        assert host.metric("ApproximateAgeOfOldestRequest", "") == (10, 1)
        assert host.metric("HasBacklogWithoutCapacity", "") == (1, 1)
        host.join(route, instance)
        host.settle()
        host.tick()
        assert host.metric("HasBacklogWithoutCapacity", "") == (1, 2)
        assert host.metric("ApproximateBacklogSize", "") == (6, 2)
        assert host.metric("InvocationsProcesssed") == (6, 6)
        assert host.metric("TimeInBacklog") == (60_000, 6)
        assert host.metric("TotalProcessingTime") == (60_000, 6)
        for name in ("RequestDownloadLatency", "ResponseUploadLatency"):
            counted = host.metric(name)
            assert counted is not None
            assert counted[1] == 6


def test_backlog_is_per_instance(tmp_path: Path) -> None:
    with async_host(tmp_path, now=NOON) as host:
        one, other = variant("A"), variant("B")
        route = host.publish_route(variants=[one, other])
        host.tick()
        assert host.metric("HasBacklogWithoutCapacity", "") == (0, 1)
        for number in range(6):
            host.invoke(b"%d" % number)
        with fake_instance() as first, fake_instance() as second, fake_instance() as third:
            for instance in (first, second, third):
                instance.invoke = lambda _: Reply(200, b"", breaks=True)
            targets = [host.join(route, first), host.join(route, second), host.join(route, third, "B")]
            for target in targets:
                host.loop.call(setattr, target, "refuses", True)
            host.tick()
            assert host.metric("ApproximateBacklogSizePerInstance", "") == (2, 2)


def test_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    @on_loop
    async def open_it() -> None:
        path = tmp_path / "async.db"
        path.write_bytes(b"this is no database, " * 100)
        with pytest.raises(
            DatabaseError, match="which holds the queues of asynchronous endpoints: file is not"
        ):
            await Journal(path).open()

    open_it()


# any order of events

EVENTS = st.lists(
    st.sampled_from(["accept", "accept", "accept", "take", "take", "finish", "finish", "expire", "kill"]),
    max_size=60,
)


@given(EVENTS, st.integers(1, 4))
@example(["accept", "accept", "kill", "expire", "take"], 1)  # all that is read first has expired
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_request_leaves_the_queue_once(
    tmp_path_factory: pytest.TempPathFactory, events: list[str], ahead: int
) -> None:
    """A journal and its queue, against a model of both: whatever is accepted is taken until it is finished."""
    path = tmp_path_factory.mktemp("queue") / "async.db"

    @on_loop
    async def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("halimede.hosting.asynchronous.queue._AHEAD", ahead)
            await _play(path, events)

    run()


async def _play(path: Path, events: list[str]) -> None:
    journal = Journal(path)
    await journal.open()
    queue = Queue(ENDPOINT, journal)
    pending: dict[int, AsyncRequest] = {}
    finished: set[int] = set()
    running: list[AsyncRequest] = []
    seq = 0
    for event in [*events, "kill", *["take", "finish"] * 200]:
        if event == "accept":
            seq += 1
            request = AsyncRequest(seq, ENDPOINT, str(seq), 0.0, float(seq), 1, "o", "", True, "", {})
            written: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            journal.add(request, written.set_result)
            assert await written is None
            queue.accept(request)
            pending[seq] = request
        elif event == "take":
            while queue.must_read:  # those that expired may be all that was read
                await queue.read()
            request_or_none = queue.take()
            if request_or_none is not None:
                running.append(request_or_none)
            else:
                assert set(pending) == {each.seq for each in running}
        elif event == "expire":
            for request in (await journal.expired(1e9, 1)) if pending else ():
                if queue.take_out(request):
                    running.append(request)
        elif event == "finish" and running:
            request = running.pop(0)
            assert request.seq not in finished
            await journal.remove([request], [])
            queue.done([request])
            finished.add(request.seq)
            del pending[request.seq]
        elif event == "kill":
            await journal.close()
            journal = Journal(path)
            await journal.open()
            kept = (await journal.counts()).get(ENDPOINT, 0)
            queue, running = Queue(ENDPOINT, journal, kept, await journal.last()), []
        assert queue.backlog == len(pending)
        assert len({each.seq for each in running}) == len(running)
    assert not pending
    assert finished == set(range(1, seq + 1))
    await journal.close()


@given(
    st.lists(
        st.sampled_from(["accept", "fail", "break", "kill", "expire", "join", "leave", "wait"]), max_size=25
    )
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_request_ends_once_in_the_store(
    tmp_path_factory: pytest.TempPathFactory, events: list[str]
) -> None:
    """One object and one message each, whatever happens in between."""
    directory = tmp_path_factory.mktemp("host")
    broken: set[bytes] = set()

    def answer(received: Received) -> Reply:
        if received.body.startswith(b"fail"):
            return Reply(500, b"failed")
        if received.body.startswith(b"break") and received.body not in broken:
            broken.add(received.body)
            return Reply(200, b"", breaks=True)
        return Reply(200, received.body)

    with async_host(directory, now=NOON) as host, fake_instance() as one, fake_instance() as other:
        one.invoke = other.invoke = answer
        route = host.publish_route()
        targets = []
        accepted = []
        free = [one, other]
        for number, event in enumerate([*events, "join", "wait"]):
            if event in ("accept", "fail", "break", "expire"):
                ttl = {"RequestTTLSeconds": 60} if event == "expire" else {}
                accepted.append(host.invoke(b"%s %d" % (event.encode(), number), **ttl))
            elif event == "join" and free:
                instance = free.pop()
                targets.append((instance, host.join(route, instance)))
            elif event == "leave" and targets:
                instance, target = targets.pop()
                host.leave(route, target)
                free.append(instance)
            elif event == "kill":
                with suppress(TimeoutError):
                    host.restart()
            elif event == "wait":
                host.tick(61.0)
        host.settle()
        host.settle_notices()
        ends = [
            (host.exists(each["OutputLocation"]), host.exists(each["FailureLocation"])) for each in accepted
        ]
        assert all(sorted(end) == [False, True] for end in ends)
        told = [json.loads(notice.text)["inferenceId"] for notice in host.notices]
        assert sorted(told) == sorted(each["InferenceId"] for each in accepted)
        assert len(host.keys("out/")) + len(host.keys("errors/")) == len(accepted)
