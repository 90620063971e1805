"""A worker in a process of its own, for tests of what it does with children: a function here runs in it."""

import multiprocessing
import socket
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.workers.calling import Server, become_worker, echo, result


def in_worker(server: Server, function: Callable[[], Any]) -> Any:
    """What the function, of this module, returns when a worker process calls it."""
    spawn = multiprocessing.get_context("spawn")
    work, control = server.connect()
    outcome, outcome_end = spawn.Pipe()
    process = spawn.Process(target=_run, args=(work, control, outcome_end, function))
    process.start()
    assert process.pid is not None
    server.calls.pid = process.pid
    outcome.send("begin")
    for end in (work, control, outcome_end):
        end.close()
    try:
        return outcome.recv()
    finally:
        process.join(60)
        process.close()
        outcome.close()
        server.disconnect()


def _run(work: socket.socket, control: socket.socket, outcome: Any, function: Callable[[], Any]) -> None:
    outcome.recv()
    become_worker(work, control)
    outcome.send(function())
    outcome.close()


def _echo_in_child(number: int) -> float:
    return result(echo([number]).exec())[0]


def _echo_much_in_child(number: int) -> float:
    kept = echo(np.full(100_000, -1)).exec()
    for value in range(20):
        assert result(echo(np.full(100_000, value)).exec())[99_999] == value
    assert result(kept)[0] == -1
    return result(echo(np.full(100_000, number)).exec())[0]


def call_from_pool() -> list[float]:
    """Calls from the children of a pool, and then from the worker itself."""
    first = _echo_in_child(100)  # so that there is a socket to inherit
    fork = multiprocessing.get_context("fork")
    with fork.Pool(10) as pool:
        answers = pool.map(_echo_in_child, range(40))
    return [first, *answers, _echo_in_child(200)]


def call_much_from_pool() -> list[float]:
    """Calls with large tensors from the children of a pool."""
    fork = multiprocessing.get_context("fork")
    with fork.Pool(3) as pool:
        return pool.map(_echo_much_in_child, range(6))


def pass_on_in_child() -> list[float]:
    """A response of before the fork is an input in the child."""
    response: Any = echo(np.arange(100_000)).exec()
    (output,) = response.output_tensors()
    output._name = "INPUT0"  # noqa: SLF001 - what the package does itself
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: send.send(result(echo(output).exec())[-3:]))
    child.start()
    values: list[float] = receive.recv()
    child.join()
    return values


def read_stream_in_child() -> str:
    """What reading the parent's stream in a child raises."""
    from tests.workers.calling import count

    responses: Any = count(3).exec(decoupled=True)
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)

    def read() -> None:
        try:
            next(responses)
            next(responses)
        except Exception as error:
            send.send(str(error))

    child = fork.Process(target=read)
    child.start()
    text: str = receive.recv()
    child.join()
    assert len(list(responses)) == 4
    return text
