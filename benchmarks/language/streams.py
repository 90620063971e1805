"""Callers of OpenAI's API that read their texts as server-sent events, all in one thread."""

import selectors
import socket
import statistics
import time
from dataclasses import dataclass, field

import orjson

from benchmarks.errors import BenchmarkError
from benchmarks.language.writer import NAME

_END = b"0\r\n\r\n"
_EVENT = b"data: "
_CONTENT = b'"delta":{"content":"'
_PATIENCE_S = 120


@dataclass(slots=True)
class Caller:
    """A connection on which one text after another is asked for.

    Attributes:
        socket: the connection.
        started: when the present text was asked for, in seconds.
        first: the text has begun.
        events: how many have come of it.
        tail: the last bytes that have come.
    """

    socket: socket.socket
    started: float = 0.0
    first: bool = False
    events: int = 0
    tail: bytes = b""


@dataclass(slots=True)
class Streamed:
    """What came.

    Attributes:
        tokens: of texts; each is a piece.
        seconds: how long it took.
        firsts: seconds to the first piece of each text.
    """

    tokens: float = 0
    seconds: float = 0
    firsts: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    @property
    def first(self) -> float:
        """The median time to the first piece, in seconds."""
        return statistics.median(self.firsts)


def stream(port: int, callers: int, seconds: float, prompt: str, tokens: int) -> Streamed:
    """Have texts of so many tokens written for so long; those that are under way at the end are left.

    Raises:
        BenchmarkError: an answer is no stream, or none comes.
    """
    body = orjson.dumps(
        {
            "model": NAME,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "min_tokens": tokens,
            "temperature": 0,
            "stream": True,
        }
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    message = head.encode() + body
    result = Streamed()
    with selectors.DefaultSelector() as selector:
        every = [Caller(socket.create_connection(("127.0.0.1", port))) for _ in range(callers)]
        began = time.perf_counter()
        for caller in every:
            caller.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(caller.socket, selectors.EVENT_READ, caller)
            _ask(caller, message)
        while (now := time.perf_counter()) - began < seconds or not result.firsts:
            ready = selector.select(_PATIENCE_S)
            if not ready:
                raise BenchmarkError(f"nothing came for {_PATIENCE_S} s")
            now = time.perf_counter()
            for key, _ in ready:
                _read(key.data, now, tokens, result, message)
        result.seconds = now - began
        result.tokens += sum(max(0, caller.events - 1) for caller in every)
        for caller in every:
            caller.socket.close()
    return result


def _ask(caller: Caller, message: bytes) -> None:
    caller.socket.sendall(message)
    caller.started, caller.first, caller.events, caller.tail = time.perf_counter(), False, 0, b""


def _read(caller: Caller, now: float, tokens: int, result: Streamed, message: bytes) -> None:
    data = caller.socket.recv(1 << 18)
    if not data or b"error" in data:
        raise BenchmarkError(f"a text ended too soon: {data[:300]!r}")
    if not caller.first and data.count(_CONTENT) > data.count(_CONTENT + b'"'):
        caller.first = True
        result.firsts.append(now - caller.started)
    caller.events += data.count(_EVENT)
    caller.tail = (caller.tail + data)[-len(_END) :]
    if caller.tail == _END:
        result.tokens += tokens
        _ask(caller, message)
