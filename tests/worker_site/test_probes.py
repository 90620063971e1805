"""Answers to the server's readiness probes."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from halimede_worker.messages.memory import Memory
from halimede_worker.messages.wire import IS_READY, Channel
from halimede_worker.probes import Probes
from halimede_worker.runtime import Runtime, runtime

FAILED = "Model 'm_0' is not ready (user-defined check failed)."
NOT_BOOL = "is_ready() must return a boolean value"


class Server:
    """The other end of the control socket."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def answer(self) -> tuple[int, bool, str]:
        """The next answer: the probe, whether, and why not."""
        kind, probe, ready, why_not = self._channel.receive(timeout=10)
        assert kind == IS_READY
        return probe, ready, why_not


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """This process is the worker of an instance m_0."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        monkeypatch.setattr(runtime, "control", Channel(ours, Memory()))
        monkeypatch.setattr(runtime, "instance_name", "m_0")
        yield Server(Channel(theirs, Memory()))


def model(is_ready: Callable[[], Any]) -> SimpleNamespace:
    return SimpleNamespace(is_ready=is_ready)


@pytest.mark.parametrize(
    ("value", "ready", "why_not"),
    [(True, True, ""), (False, False, FAILED), (None, False, NOT_BOOL), (1, False, NOT_BOOL), ("yes", False, NOT_BOOL)],
)  # fmt: skip
def test_the_answer_is_that_of_the_model(server: Server, value: object, ready: bool, why_not: str) -> None:
    probes = Probes(model(lambda: value), runtime)
    probes.start(7)
    assert server.answer() == (7, ready, why_not)
    probes.start(8)
    assert server.answer() == (8, ready, why_not)


def test_a_model_without_is_ready_is_ready(server: Server) -> None:
    Probes(object(), runtime).start(3)
    assert server.answer() == (3, True, "")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("bye"), KeyboardInterrupt("stop")])
def test_a_model_that_raises_is_not_ready(server: Server, error: BaseException) -> None:
    def is_ready() -> bool:
        raise error

    Probes(model(is_ready), runtime).start(1)
    probe, ready, why_not = server.answer()
    assert (probe, ready) == (1, False)
    assert why_not.startswith(f"{type(error).__name__}: {error}")


def test_a_coroutine_runs_on_the_event_loop_of_the_instance(server: Server) -> None:
    own = Runtime()
    own.control, own.instance_name = runtime.control, "m_0"
    loops: list[asyncio.AbstractEventLoop] = []
    threads: list[threading.Thread] = []

    async def is_ready() -> bool:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        threads.append(threading.current_thread())
        return len(loops) == 1

    probes = Probes(model(is_ready), own)
    probes.start(1)
    assert server.answer() == (1, True, "")
    probes.start(2)
    assert server.answer() == (2, False, FAILED)
    loop = own.event_loop()
    assert loops == [loop, loop]
    own.stop_event_loop()
    threads[0].join(60)
    loop.close()


def test_probes_during_a_call_share_its_answer(server: Server) -> None:
    began, go_on = threading.Event(), threading.Event()
    calls: list[threading.Thread] = []

    def is_ready() -> bool:
        calls.append(threading.current_thread())
        began.set()
        return go_on.wait(60)

    probes = Probes(model(is_ready), runtime)
    probes.start(1)
    assert began.wait(10)
    probes.start(2)
    probes.start(3)
    go_on.set()
    assert [server.answer() for _ in range(3)] == [(1, True, ""), (2, True, ""), (3, True, "")]
    assert len(calls) == 1
    assert calls[0] is not threading.current_thread()


def test_a_process_without_another_thread_is_not_ready(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    Probes(model(lambda: True), runtime).start(1)
    probe, ready, why_not = server.answer()
    assert (probe, ready) == (1, False)
    assert why_not.startswith("RuntimeError: can't start new thread")
