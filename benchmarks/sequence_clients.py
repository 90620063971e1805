"""Clients that hold sequences, with the least that a client can do: many of them in one thread, on plain sockets.

Each has a connection of its own and holds one sequence after the other. A sequence's first number is its correlation
id, and each further one is 1, so that an answer made from another sequence's numbers is seen.
"""

import re
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server
from benchmarks.workload import Sample
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest, ModelStreamInferResponse
from halimede.frontends.grpc.transport.frames import frame

WARM_UP_S = 0.7
SILENT_S = 30
READ_SIZE = 1 << 18
PLACEHOLDER = 11_259_375  # stands in templates for the id; nothing else looks like it
FIRST_ID = 20_000_000  # as long as the placeholder, in digits and in Protobuf
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK, _END_HEADERS = 1, 4
_WINDOW = (1 << 31) - 1
_DEFAULT_WINDOW = 65_535


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is sent over a stream at once, and what comes back.

    Attributes:
        frames: with placeholders for the id.
        size: of the frames' content.
        answers: so many come.
        last: the number in the last answer if the id is this.
    """

    frames: bytes
    size: int
    answers: int
    last: Callable[[int], int]


class Client(Protocol):
    """Who holds one sequence after the other.

    Attributes:
        connection: its own.
        answered: answers that have come.
        last: begin no sequence after this one.
        done: that one has its last answer.
    """

    connection: socket.socket
    answered: int
    last: bool
    done: bool

    def begin(self) -> None:
        """Begin the first sequence."""

    def receive(self, data: bytes) -> None:
        """Take what has come; when the sequence has its last answer, begin the next one.

        Raises:
            BenchmarkError: an answer is an error, or wrong.
        """


def drive(clients: Sequence[Client], server: Server, seconds: float) -> Sample:
    """Answers a second that the clients get, and the server's CPU time for each.

    Raises:
        BenchmarkError: an answer is an error or wrong, or none comes.
    """
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.connection, selectors.EVENT_READ, client)
            client.begin()

        receive(selector, WARM_UP_S)
        began, cpu, before = time.perf_counter(), server.cpu_seconds(), answered(clients)
        receive(selector, seconds)
        answers, cpu = answered(clients) - before, server.cpu_seconds() - cpu
        passed = time.perf_counter() - began
        for client in clients:
            client.last = True  # so that no sequence keeps its slot from the next measurement's
        ends = time.perf_counter() + SILENT_S
        while not all(client.done for client in clients):
            if time.perf_counter() > ends:
                raise BenchmarkError(f"The server has not answered for {SILENT_S} s")
            receive(selector, 0.01)
    for client in clients:
        client.connection.close()
    if not answers:
        raise BenchmarkError(f"The server gave no answer within {seconds} s")
    return Sample(answers / passed, cpu / answers * 1e6)


def receive(selector: selectors.BaseSelector, seconds: float) -> None:
    """Hand the clients what comes, for so long.

    Raises:
        BenchmarkError: an answer is an error or wrong, or a connection is closed.
    """
    deadline = time.perf_counter() + seconds
    while (left := deadline - time.perf_counter()) > 0:
        for key, _ in selector.select(left):
            data = key.data.connection.recv(READ_SIZE)
            if not data:
                raise BenchmarkError("The server has closed a connection")
            key.data.receive(data)


def answered(clients: Sequence[Client]) -> int:
    """Answers that all of them have got."""
    return sum(client.answered for client in clients)


class StreamClient:
    """A gRPC stream on which the requests of a sequence are sent all at once; see `Client`."""

    def __init__(self, port: int, ids: Iterator[int], exchange: Exchange) -> None:
        self.connection = connect(port)
        self.answered = 0
        self.last = self.done = False
        self._ids = ids
        self._exchange = exchange
        self._id = 0
        self._left = 0
        self._window = self._stream_window = _DEFAULT_WINDOW  # bytes that the server takes now
        self._initial_window = _DEFAULT_WINDOW
        self._waiting = b""  # frames that the window has no room for
        self._read = b""
        self._body = b""

    def begin(self) -> None:
        """Open the stream, and begin the first sequence."""
        initial_window_size = 4
        settings = initial_window_size.to_bytes(2) + _WINDOW.to_bytes(4)
        opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, 0, settings)
        opening += frame(_WINDOW_UPDATE, 0, 0, (_WINDOW - _DEFAULT_WINDOW).to_bytes(4))
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": "/inference.GRPCInferenceService/ModelStreamInfer",
            ":authority": "127.0.0.1",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        block = b"".join(literal(name, value) for name, value in headers.items())
        self.connection.sendall(opening + frame(_HEADERS, _END_HEADERS, 1, block))
        self._next()

    def _next(self) -> None:
        self._id, self._left = next(self._ids), self._exchange.answers
        self._waiting = filled(self._exchange.frames, self._id)
        self._send()

    def _send(self) -> None:
        size = self._exchange.size
        if self._waiting and size <= min(self._window, self._stream_window):
            self._window -= size
            self._stream_window -= size
            self.connection.sendall(self._waiting)
            self._waiting = b""

    def receive(self, data: bytes) -> None:
        """Take frames, whole or not."""
        data = self._read + data
        at, end = 0, len(data)
        while end - at >= 9:
            after = at + 9 + int.from_bytes(data[at : at + 3])
            if after > end:
                break
            if data[at + 3] == _DATA:
                self._body += data[at + 9 : after]
            else:
                self._control(data[at + 3], data[at + 4], data[at + 5 : at + 9], data[at + 9 : after])
            at = after
        self._read = data[at:]
        self._messages()

    def _messages(self) -> None:
        body, at = self._body, 0
        while len(body) - at >= 5:
            after = at + 5 + int.from_bytes(body[at + 1 : at + 5])
            if after > len(body):
                break
            self.answered += 1
            self._left -= 1
            if not self._left:
                self._check(body[at + 5 : after])
                self.done = self.last
                if not self.done:
                    self._next()
            at = after
        self._body = body[at:]

    def _check(self, message: bytes) -> None:
        answer = ModelStreamInferResponse.FromString(message)
        if answer.error_message:
            raise BenchmarkError(f"Sequence {self._id}: {answer.error_message}")
        check(self._id, answer.infer_response.raw_output_contents[0], self._exchange.last(self._id))

    def _control(self, kind: int, flags: int, stream: bytes, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(payload), 6):
                if payload[at : at + 2] == b"\0\4":
                    size = int.from_bytes(payload[at + 2 : at + 6])
                    self._stream_window += size - self._initial_window
                    self._initial_window = size
            self.connection.sendall(frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.connection.sendall(frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE:
            if any(stream):
                self._stream_window += int.from_bytes(payload)
            else:
                self._window += int.from_bytes(payload)
        elif kind in (_RESET, _GOAWAY) or (kind == _HEADERS and flags & 1):
            raise BenchmarkError(f"The server has ended the stream: frame of type {kind}, {payload[:300]!r}")
        self._send()


class HttpClient:
    """Requests of a sequence one after the other; see `Client`."""

    def __init__(
        self, port: int, ids: Iterator[int], templates: Sequence[bytes], last: Callable[[int], int]
    ) -> None:
        self.connection = connect(port)
        self.answered = 0
        self.last = self.done = False
        self._ids = ids
        self._templates = templates
        self._last = last
        self._id = 0
        self._sent = 0  # requests of the sequence
        self._read = b""

    def begin(self) -> None:
        """Begin the first sequence."""
        self._id, self._sent = next(self._ids), 0
        self._send()

    def _send(self) -> None:
        self.connection.sendall(filled(self._templates[self._sent], self._id))
        self._sent += 1

    def receive(self, data: bytes) -> None:
        """Take an answer, or a part of it."""
        self._read += data
        head = self._read.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(self._read, 0, head + 2)
        if not self._read.startswith(b"HTTP/1.1 200") or length is None:
            raise BenchmarkError(f"Sequence {self._id}: {self._read[:500]!r}")
        if len(self._read) < head + 4 + int(length[1]):
            return
        self.answered += 1
        if self._sent == len(self._templates):
            check(self._id, self._read[-4:], self._last(self._id))
            self.done = self.last
            if self.done:
                return
            self._id, self._sent = next(self._ids), 0
        self._read = b""
        self._send()


def connect(port: int) -> socket.socket:
    """A connection to the server on this machine."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def check(correlation_id: int, data: bytes, total: int) -> None:
    """Return if the tensor holds that number.

    Raises:
        BenchmarkError: it holds another.
    """
    value = int.from_bytes(data, "little", signed=True)
    if value != total:
        raise BenchmarkError(f"The last answer to sequence {correlation_id} is {value}, and not {total}")


def exchange(model: str, values: Sequence[int], answers: int, last: Callable[[int], int]) -> Exchange:
    """A request for each number; they form a sequence if there are several."""
    messages = []
    for number, value in enumerate(values):
        request = ModelInferRequest(model_name=model, raw_input_contents=[int32(value)])
        request.inputs.add(name="INPUT0", datatype="INT32", shape=[1, 1])
        if len(values) > 1:
            request.parameters["sequence_id"].int64_param = PLACEHOLDER
            request.parameters["sequence_start"].bool_param = number == 0
            request.parameters["sequence_end"].bool_param = number == len(values) - 1
        message = request.SerializeToString()
        messages.append(b"\0" + len(message).to_bytes(4) + message)
    frames = b"".join(frame(_DATA, 0, 1, message) for message in messages)
    return Exchange(frames, sum(map(len, messages)), answers, last)


def http_templates(model: str, values: Sequence[int]) -> list[bytes]:
    """A request of a sequence for each number."""
    return [
        http_template(model, value, start=number == 0, end=number == len(values) - 1)
        for number, value in enumerate(values)
    ]


def http_template(model: str, value: int, *, start: bool, end: bool) -> bytes:
    """A request of a sequence, with binary tensors."""
    flags = f'"sequence_start":{str(start).lower()},"sequence_end":{str(end).lower()}'
    json = (
        f'{{"parameters":{{"sequence_id":{PLACEHOLDER},{flags}}},"inputs":[{{"name":"INPUT0","shape":[1,1],'
        '"datatype":"INT32","parameters":{"binary_data_size":4}}],'
        '"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}'
    )
    head = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(json) + 4}\r\n"
        f"Inference-Header-Content-Length: {len(json)}\r\n\r\n"
    )
    return f"{head}{json}".encode() + int32(value)


def filled(template: bytes, correlation_id: int) -> bytes:
    """The template with the id in place of all placeholders: as a varint, in digits and as an INT32."""
    for encode in (varint, lambda number: str(number).encode(), int32):
        template = template.replace(encode(PLACEHOLDER), encode(correlation_id))
    return template


def int32(number: int) -> bytes:
    """A number as a tensor of one element."""
    return number.to_bytes(4, "little", signed=True)


def varint(number: int) -> bytes:
    """A number of 22 to 28 bits as Protobuf writes it."""
    return bytes(number >> 7 * part & 0x7F | (0x80 if part < 3 else 0) for part in range(4))


def literal(name: str, value: str) -> bytes:
    """A header without indexing, for HPACK."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
