"""Bytes that ordinary clients do not send: raw HTTP/1.1 requests and raw HTTP/2 frames."""

import socket
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from halimede.frontends.grpc.transport.frames import PREFACE, settings

GREETING = PREFACE + settings({})
"""What a client of HTTP/2 begins with."""

PATIENCE = 60.0
"""Seconds that an attack waits for an answer."""


def connect(address: str) -> socket.socket:
    """A connection to a host and port."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A request whose length is announced."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def ask(address: str, *parts: bytes) -> str:
    """Send a request in parts: the status of the answer, or how the connection ended instead."""
    try:
        with connect(address) as client:
            with suppress(BrokenPipeError, ConnectionResetError):  # the server may answer before it has all
                for part in parts:
                    client.sendall(part)
            return status(client)
    except TimeoutError:
        return "no answer"
    except ConnectionResetError:
        return "reset"
    except ConnectionRefusedError:
        return "refused"


def status(client: socket.socket) -> str:
    """The status of the answer, whose rest is read, too."""
    head = b""
    while b"\r\n\r\n" not in head:
        if not (data := client.recv(1 << 16)):
            return "closed"
        head += data
    answer, _, rest = head.partition(b"\r\n\r\n")
    for line in answer.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            left = int(line.partition(b":")[2]) - len(rest)
            while left > 0 and (data := client.recv(1 << 20)):
                left -= len(data)
    return answer.split(b" ", 2)[1].decode()


def together(count: int, attack: Callable[[], str], threads: int = 32) -> str:
    """Do the same so many times at once: how often there was which outcome."""
    with ThreadPoolExecutor(min(count, threads)) as pool:
        return counted(pool.map(lambda _: attack(), range(count)))


def counted(outcomes: Iterable[str]) -> str:
    """How often there was which outcome."""
    return ", ".join(f"{count} × {outcome}" for outcome, count in Counter(outcomes).most_common())


def literal(name: str, value: str) -> bytes:
    """A header of HPACK that is in no table: no index, no Huffman code, shorter than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call(method: str, *more: tuple[str, str]) -> bytes:
    """The headers of a gRPC call."""
    headers = [
        (":method", "POST"), (":scheme", "http"), (":path", f"/inference.GRPCInferenceService/{method}"),
        (":authority", "localhost"), ("te", "trailers"), ("content-type", "application/grpc"), *more,
    ]  # fmt: skip
    return b"".join(literal(*header) for header in headers)


def flood(address: str, begin: bytes, block: bytes, megabytes: int = 16) -> str:
    """Send frames without a pause, until that much is sent or the server closes the connection."""
    block *= max(1, (1 << 16) // len(block))
    sent = 0
    try:
        with connect(address) as client:
            client.sendall(GREETING + begin)
            while sent < megabytes << 20:
                client.sendall(block)
                sent += len(block)
    except TimeoutError:
        return f"not read after {sent >> 10} KiB"
    except OSError:
        return f"closed after {sent >> 10} KiB" if sent < megabytes << 20 else "closed"
    return "all read"
