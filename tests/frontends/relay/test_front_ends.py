"""Front ends that fail in ways that nobody foresaw: another one is started, the log says why, and nothing hangs."""

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from halimede.core import tasks
from halimede.frontends.relay import front_ends as front_ends_module
from halimede.frontends.relay.front_ends import FrontEnd, FrontEnds, Served
from halimede.frontends.relay.traffic import RelayedTraffic
from halimede.workers.exit_reason import ExitReason
from tests.hosting.control.fakes import on_loop
from tests.support.waiting import wait_until_async


class FakeProcess:
    """A front end without a process (`WorkerProcess`): the test has its end of the socket."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.work, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.has_ended = self.was_killed = False

    def on_output(self, callback: Callable[[bytes, bool], None]) -> None:
        """It prints nothing."""

    async def end(self, kill: bool = False, within_s: float = 0.0) -> ExitReason:
        self.was_killed = kill
        self.has_ended = True
        self.work.close()
        self.far.close()
        return ExitReason(0, kill, None)


class Processes:
    """What starts front ends (`Zygote`).

    Attributes:
        made: those that were started.
        failures: what the next starts fail by.
    """

    def __init__(self) -> None:
        self.made: list[FakeProcess] = []
        self.failures: list[Exception] = []

    def __call__(self, *_: Any) -> "Processes":
        return self

    def spawn(self, *_: Any) -> FakeProcess:
        if self.failures:
            raise self.failures.pop(0)
        self.made.append(FakeProcess(len(self.made) + 1))
        return self.made[-1]

    def close(self) -> None:
        """There is none."""


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    processes = Processes()
    monkeypatch.setattr(front_ends_module, "Zygote", processes)
    monkeypatch.setattr(front_ends_module, "_RESTART_S", 0.001)
    monkeypatch.setattr(tasks, "_PAUSE_S", 0.0)
    return processes


def make(traffic: RelayedTraffic) -> FrontEnds:
    tracing = SimpleNamespace(active=False, on_change=[])
    told: Any = SimpleNamespace(
        engine=SimpleNamespace(tracing=tracing, inflight=None), rows=list, on_change=None
    )
    served = Served({}, {}, None, logged=False, traffic={"grpc": traffic}, told=told)
    front_ends = FrontEnds(asyncio.get_running_loop(), 1, "module:function", {}, served)
    front_ends.start()
    return front_ends


async def end(front_ends: FrontEnds, processes: Processes) -> None:
    """End them all."""
    closing = asyncio.create_task(front_ends.close(1.0))
    for process in processes.made:
        if not process.has_ended:
            process.far.close()
    await closing


@on_loop
async def test_a_front_end_whose_start_fails_is_started_again(
    processes: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    processes.failures = [RuntimeError("unforeseen")]
    front_ends = make(RelayedTraffic("grpc", limited=False))
    await wait_until_async(lambda: front_ends.pids == [1])
    assert "looking after front end 0 failed; it is started again in 0 s" in caplog.messages
    await end(front_ends, processes)


@on_loop
async def test_a_front_end_that_cannot_be_used_is_ended_and_what_it_had_is_given_up(
    processes: Processes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("unforeseen")]
    members: list[FrontEnd] = []
    post = FrontEnd.post

    def fail(member: FrontEnd, *item: Any) -> None:
        if failures:
            members.append(member)
            member.open["grpc"] = traffic.open = 1
            raise failures.pop()
        post(member, *item)

    monkeypatch.setattr(FrontEnd, "post", fail)
    traffic = RelayedTraffic("grpc", limited=False)
    front_ends = make(traffic)
    await wait_until_async(lambda: front_ends.pids == [2])
    first, _ = processes.made
    assert (first.has_ended, first.was_killed) == (True, True)
    assert traffic.open == 0
    assert not await members[0].close(1.0)  # at once: nobody waits for a process that is gone
    assert "looking after front end 0 failed; it is started again in 0 s" in caplog.messages
    await end(front_ends, processes)
