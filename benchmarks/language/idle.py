"""Streams that have begun and are silent."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import orjson

from benchmarks import python_models
from benchmarks.processes import Server, halimede
from benchmarks.workload import Sample, Sides

IDLE_STREAMS = 1000
IDLE_GOAL_KB = 20.0

_MESSAGE_END = b'"content":"a"'


@contextmanager
def idle_streams(_seconds: float) -> Iterator[Sides]:
    """The memory of all processes for each of so many streams over OpenAI's API, and what it may be."""
    with halimede(python_models.silent(), None, ["--allow-openai=true"]) as server:

        def sample() -> Sample:
            with begun(server, 10):
                before = server.resident_mb_of_all()
                with begun(server, IDLE_STREAMS):
                    taken = server.resident_mb_of_all() - before
            return Sample(taken * 1e3 / IDLE_STREAMS)

        yield Sides(sample, lambda: Sample(IDLE_GOAL_KB))


@contextmanager
def begun(server: Server, count: int) -> Iterator[None]:
    """So many streams, each of which has brought its first piece, and then nothing."""
    body = orjson.dumps(
        {"model": "silent", "messages": [{"role": "user", "content": "Begin."}], "stream": True}
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as opened:
        every = []
        for _ in range(count):
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", server.http_port)))
            connection.sendall(head.encode() + body)
            every.append(connection)
        for connection in every:
            received = b""
            while _MESSAGE_END not in received:
                received += connection.recv(4096)
        yield
