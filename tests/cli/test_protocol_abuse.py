"""Attacks on HTTP/1 and HTTP/2, on a server with two front ends and on one without: the same answers, and all go on."""

import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import grpc
import pytest
from hpack import Encoder

from halimede.frontends.grpc.kserve_pb2 import ModelInferResponse
from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.compression import gzip
from halimede.frontends.grpc.transport.frames import ErrorCode, frame
from tests.cli.echo import REQUEST, infer, write_model
from tests.cli.test_front_ends import front_ends, serving
from tests.frontends.grpc.service_fakes import infer_request
from tests.frontends.grpc.transport.wire import message
from tests.support.server import ServerProcess, start_server

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
CALL = infer_request(b"12345678", model="echo", shape=(2,)).SerializeToString()
END = frames.END_STREAM
WHOLE = frames.END_HEADERS
LARGE = infer_request(bytes(1 << 20), model="echo", shape=(1 << 18,)).SerializeToString()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """A server with front ends, and one without; neither may lose a process, or log an error that nobody foresaw."""
    repository = tmp_path_factory.mktemp("models")
    write_model(repository)
    with serving(repository) as several, start_server(repository, "--front-ends=1") as one:
        processes = front_ends(several)
        yield several, one
        assert front_ends(several) == processes
        for server in (several, one):
            assert "Traceback" not in server.log


def _exchange(address: str, data: bytes) -> bytes:
    """All that a server says to one who sends this, and then no more."""
    host, _, port = address.rpartition(":")
    said = bytearray()
    with socket.create_connection((host, int(port)), 60) as connection:
        with suppress(OSError):  # the server may have closed already, and has said why
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while piece := connection.recv(1 << 16):
                said += piece
    return bytes(said)


def _vanish(address: str, data: bytes) -> None:
    """Send this, and break the connection off."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            connection.sendall(data)


def _check_well_behaved(server: ServerProcess) -> None:
    assert infer(server) == 200
    with grpc.insecure_channel(server.grpc) as channel:
        answer = channel.unary_unary(INFER)(CALL, timeout=60, wait_for_ready=True)
    assert ModelInferResponse.FromString(answer).raw_output_contents == [b"12345678"]


# HTTP/1


def _post(*lines: str, body: bytes = b"") -> bytes:
    return (
        "\r\n".join(["POST /v2/models/echo/infer HTTP/1.1", "Host: h", *lines]).encode() + b"\r\n\r\n" + body
    )


_LENGTH = f"Content-Length: {len(REQUEST)}"
_CHUNKED = "Transfer-Encoding: chunked"
_ONE_CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (len(REQUEST), REQUEST)
_SMUGGLED = b"GET /v2 HTTP/1.1\r\nHost: h\r\n\r\n"

HTTP1 = {
    "length and chunks": _post(_LENGTH, _CHUNKED, body=_ONE_CHUNK + _SMUGGLED),
    "chunks and length": _post(_CHUNKED, "Content-Length: 4", body=_ONE_CHUNK + _SMUGGLED),
    "two lengths": _post("Content-Length: 1", _LENGTH, body=REQUEST),
    "the same length twice": _post(_LENGTH, _LENGTH, body=REQUEST),
    "a list of lengths": _post(f"{_LENGTH}, {len(REQUEST)}", body=REQUEST),
    "a signed length": _post("Content-Length: +5", body=b"hello"),
    "a negative length": _post("Content-Length: -5", body=b"hello"),
    "a hexadecimal length": _post("Content-Length: 0x10", body=REQUEST),
    "a length of many digits": _post("Content-Length: " + "9" * 5000),
    "a length with a space in its name": _post("Content-Length : 5", body=b"hello"),
    "a length behind a tab": _post("Content-Length:\t5", body=b"hello"),
    "two codings": _post("Transfer-Encoding: gzip, chunked", body=_ONE_CHUNK),
    "an unknown coding": _post("Transfer-Encoding: xchunked", body=_ONE_CHUNK),
    "a coding in quotes": _post('Transfer-Encoding: "chunked"', body=_ONE_CHUNK),
    "two headers of codings": _post(_CHUNKED, _CHUNKED, body=_ONE_CHUNK),
    "a coding behind a vertical tab": _post("Transfer-Encoding: \x0bchunked", body=_ONE_CHUNK),
    "chunks in HTTP/1.0": _post(_CHUNKED, body=_ONE_CHUNK).replace(b"1.1", b"1.0") + _SMUGGLED,
    "a negative chunk": _post(_CHUNKED, body=b"-1\r\nx\r\n0\r\n\r\n"),
    "a chunk that is too long": _post(_CHUNKED, body=b"2\r\nabc\r\n0\r\n\r\n"),
    "a chunk of a huge size": _post(_CHUNKED, body=b"ffffffffffffffff\r\nx"),
    "a chunk of a size beyond 64 bits": _post(_CHUNKED, body=b"1" + b"0" * 16 + b"\r\nx"),
    "a chunk's line without a carriage return": _post(_CHUNKED, body=b"1\nx\r\n0\r\n\r\n"),
    "a long extension of a chunk": _post(_CHUNKED, body=b"1;" + b"x" * 1000 + b"\r\nx\r\n0\r\n\r\n"),
    "a trailer that is a length": _post(
        _CHUNKED, body=_ONE_CHUNK[:-2] + b"Content-Length: 3\r\n\r\n" + _SMUGGLED
    ),
    "endless trailers": _post(_CHUNKED, body=b"0\r\n" + b"a: b\r\n" * 20_000),
    "70,000 chunks": _post(_CHUNKED, body=b"1\r\n \r\n" * 70_000),
    "a folded header": _post("A: b\r\n c", _LENGTH, body=REQUEST),
    "a header without a colon": _post("nothing", _LENGTH, body=REQUEST),
    "a header without a name": _post(": x", _LENGTH, body=REQUEST),
    "a null in a header": _post("A: \0", _LENGTH, body=REQUEST),
    "a carriage return in a header": _post("A: b\rc", _LENGTH, body=REQUEST),
    "two hosts": _post("Host: other", _LENGTH, body=REQUEST),
    "many headers": _post(*(f"A{number}: b" for number in range(500)), _LENGTH, body=REQUEST),
    "a long header": _post("A: " + "b" * 100_000),
    "a long target": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "an absolute target": b"GET http://other/v2 HTTP/1.1\r\nHost: h\r\n\r\n",
    "a target without a slash": b"GET v2 HTTP/1.1\r\nHost: h\r\n\r\n",
    "CONNECT": b"CONNECT other:80 HTTP/1.1\r\nHost: other:80\r\n\r\n",
    "an unknown method": b"FROB / HTTP/1.1\r\nHost: h\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/3.7": b"GET / HTTP/3.7\r\nHost: h\r\n\r\n",
    "HTTP/2's preface": frames.PREFACE + frames.settings({}),
    "an upgrade": b"GET /v2 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    + frames.PREFACE,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "empty lines": b"\r\n" * 100_000 + _SMUGGLED,
    "an expectation of miracles": _post("Expect: miracles", _LENGTH, body=REQUEST),
    "a body that ends too early": _post("Content-Length: 1000", body=REQUEST),
    "a head that ends too early": b"POST /v2/models/echo/infer HTTP/1.1\r\nHo",
    "chunks that end too early": _post(_CHUNKED, body=_ONE_CHUNK[:-3]),
    "tensors beyond the body": _post(_LENGTH, "Inference-Header-Content-Length: 999999", body=REQUEST),
    "a body that is not gzip": _post(_LENGTH, "Content-Encoding: gzip", body=REQUEST),
    "a bomb": _post(
        f"Content-Length: {len(gzip((bytes(80 << 20),), 1))}",
        "Content-Encoding: gzip",
        body=gzip((bytes(80 << 20),), 1),
    ),
    "many pipelined requests": _SMUGGLED * 5000,
    "pipelined inference": _post(_LENGTH, body=REQUEST) * 500,
}


def _shape(said: bytes) -> list[bytes]:
    """The statuses of the answers in what a server has said."""
    return re.findall(rb"HTTP/1.1 (\d\d\d) ", said)


@pytest.mark.parametrize("attack", HTTP1.values(), ids=HTTP1)
def test_http_attack_is_answered_alike_and_harms_nobody(
    servers: tuple[ServerProcess, ServerProcess], attack: bytes
) -> None:
    several, one = (_shape(_exchange(server.http, attack)) for server in servers)
    assert several == one
    assert one
    for server in servers:
        _vanish(server.http, attack)
        _vanish(server.http, attack[: len(attack) * 2 // 3])
        _check_well_behaved(server)


# HTTP/2


def _block(path: str = INFER, **changed: str) -> bytes:
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "h", "te": "trailers"}
    fields["content-type"] = "application/grpc"
    fields |= {name.replace("p_", ":").replace("_", "-"): value for name, value in changed.items()}
    return bytes(_ENCODER.encode([(name, value) for name, value in fields.items() if value]))


_ENCODER = Encoder()
_ENCODER.header_table_size = 0  # so that blocks do not depend on each other
_ = _block()  # tells so


def _headers(stream: int, flags: int = WHOLE, block: bytes = b"") -> bytes:
    return frame(frames.HEADERS, flags, stream, block or _block())


def _call(stream: int, data: bytes = CALL, **changed: str) -> bytes:
    return _headers(stream, block=_block(**changed)) + frame(frames.DATA, END, stream, message(data))


def _many(count: int, *parts: bytes) -> bytes:
    """So many streams, each with these frames; 0 stands for their stream."""
    return b"".join(
        part[:5] + stream.to_bytes(4, "big") + part[9:] for stream in range(1, 2 * count, 2) for part in parts
    )


HTTP2 = {
    "a message that ends in its middle": _headers(1) + frame(frames.DATA, END, 1, message(CALL)[:-5]),
    "a message that ends in its prefix": _headers(1) + frame(frames.DATA, END, 1, b"\0\0"),
    "a call without a message": _headers(1, WHOLE | END),
    "a call with two messages": _headers(1) + frame(frames.DATA, END, 1, message(CALL) * 2),
    "many calls that end in the middle": _many(
        500, _headers(0), frame(frames.DATA, END, 0, message(LARGE)[:9000])
    ),
    "a reset in the middle of a message": _headers(1)
    + frame(frames.DATA, 0, 1, message(LARGE)[:16_000])
    + frames.rst_stream(1, ErrorCode.CANCEL),
    "a stream of messages that ends in the middle": _headers(1, block=_block(STREAM))
    + frame(frames.DATA, END, 1, message(CALL) + message(CALL)[:20]),
    "a call that is compressed without saying how": _headers(1)
    + frame(frames.DATA, END, 1, message(CALL, compressed=True)),
    "a call that is not gzip": _call(1, grpc_encoding="gzip")[:-5]
    + frame(frames.DATA, END, 1, message(b"x" * 50, compressed=True)),
    "a bomb": _headers(1, block=_block(grpc_encoding="gzip"))
    + frame(frames.DATA, END, 1, message(gzip((bytes(50 << 20),), 9), compressed=True)),
    "a prefix of another kind": _headers(1) + frame(frames.DATA, END, 1, b"\7\0\0\0\1x"),
    "a message of 4 GiB": _headers(1) + frame(frames.DATA, 0, 1, b"\0\xff\xff\xff\xffx"),
    "an unknown method": _call(1, p_path="/none/None"),
    "a deadline in the past": _call(1, grpc_timeout="0n"),
    "a deadline that is none": _call(1, grpc_timeout="soon"),
    "GET": _call(1, p_method="GET"),
    "metadata that is not base64": _call(1, x_bin="%%%"),
    "an upper-case header": _headers(1, block=_block() + b"\x00\x01A\x01b"),
    "a connection header": _call(1, connection="close"),
    "an index beyond the table": _headers(1, block=b"\xff\x7f"),
    "a block that ends in its middle": _headers(1, block=_block()[:-3]),
    "a table size beyond the limit": _headers(1, block=b"\x3f\xff\xff\x07" + _block()),
    "many headers": _headers(1, block=_block() + b"\x90" * 2000),
    "a long header": _headers(1, 0) + frame(frames.CONTINUATION, 0, 1, b"x" * 16_000) * 8,
    "a block that is interrupted": _headers(1, 0) + frames.window_update(0, 1),
    "CONTINUATION of nothing": frame(frames.CONTINUATION, WHOLE, 1, b""),
    "empty CONTINUATION frames": _headers(1, 0) + frame(frames.CONTINUATION, 0, 1) * 200,
    "an even stream": _headers(2),
    "a stream of 0": _headers(0),
    "streams in the wrong order": _call(5) + _headers(3),
    "a stream that is used twice": _call(1) + _call(1),
    "DATA for no stream": frame(frames.DATA, END, 9, b"x"),
    "DATA after the end": _call(1) + frame(frames.DATA, 0, 1, b"x") * 3,
    "more padding than there is": _headers(1) + frame(frames.DATA, frames.PADDED, 1, b"\xffx"),
    "padding in no bytes": _headers(1) + frame(frames.DATA, frames.PADDED, 1),
    "empty DATA": _headers(1) + frame(frames.DATA, 0, 1) * 500,
    "one byte a frame": _headers(1)
    + b"".join(frame(frames.DATA, 0, 1, bytes((byte,))) for byte in message(CALL)),
    "a frame that is too long": frames.FRAME_HEADER.pack(0xFFFF, 0xFF, frames.DATA, 0, 1),
    "a WINDOW_UPDATE of 0": frames.window_update(0, 0),
    "WINDOW_UPDATEs of 0 on streams": _many(1500, _headers(0), frames.window_update(0, 0)),
    "a window beyond its limit": frames.window_update(0, 2**31 - 1) * 2,
    "WINDOW_UPDATEs": frames.window_update(0, 1) * 12_000,
    "a window of 0": frames.settings({frames.INITIAL_WINDOW_SIZE: 0}) + _call(1),
    "a window beyond 31 bits": frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31}),
    "frames of one byte": frames.settings({frames.MAX_FRAME_SIZE: 1}),
    "SETTINGS": frames.settings({}) * 300,
    "SETTINGS of 5 bytes": frame(frames.SETTINGS, 0, 0, b"12345"),
    "SETTINGS on a stream": frame(frames.SETTINGS, 0, 1),
    "an acknowledgement with content": frame(frames.SETTINGS, frames.ACK, 0, bytes(6)),
    "PINGs": frames.ping(bytes(8)) * 1500,
    "a PING of 7 bytes": frame(frames.PING, 0, 0, bytes(7)),
    "PRIORITY on itself": frame(frames.PRIORITY, 0, 1, b"\0\0\0\1\0") * 12_000,
    "RST_STREAM of no stream": frames.rst_stream(7, ErrorCode.CANCEL),
    "rapid resets": _many(1500, _headers(0), frames.rst_stream(0, ErrorCode.CANCEL)),
    "PUSH_PROMISE": frame(frames.PUSH_PROMISE, WHOLE, 1, bytes(4) + _block()),
    "GOAWAY": frames.goaway(0, ErrorCode.NO_ERROR) + _call(1),
    "unknown frames": frame(0xEE, 0xFF, 5, b"x" * 20) * 12_000,
    "more streams than allowed": _many(2500, _headers(0)),
    "calls without messages": _many(3000, _headers(0, WHOLE | END)),
    "calls": _many(1000, _headers(0), frame(frames.DATA, END, 0, message(CALL))),
    "messages of no bytes": _headers(1, block=_block(STREAM)) + frame(frames.DATA, 0, 1, message(b"") * 3000),
}
FIRST = {
    "no SETTINGS": frames.PREFACE + _call(1),
    "another preface": b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    "half a preface": frames.PREFACE[:10],
    "HTTP/1": _SMUGGLED,
    "TLS": b"\x16\x03\x01\x02\x00\x01",
}
CONNECTIONS = {name: frames.PREFACE + frames.settings({}) + data for name, data in HTTP2.items()} | FIRST


def _end(said: bytes) -> tuple[int, bytes]:
    """Why a connection was closed: the code of GOAWAY and its text, or what else was said."""
    position = 0
    if said.startswith(b"HTTP/1.1"):
        return -1, said
    while position < len(said):
        high, low, kind, _, _ = frames.FRAME_HEADER.unpack_from(said, position)
        start = position + frames.HEADER_SIZE
        position = start + (high << 8 | low)
        if kind == frames.GOAWAY:
            return int.from_bytes(said[start + 4 : start + 8], "big"), said[start + 8 : position]
    return 0, b""


@pytest.mark.parametrize("attack", CONNECTIONS.values(), ids=CONNECTIONS)
def test_http2_attack_is_answered_alike_and_harms_nobody(
    servers: tuple[ServerProcess, ServerProcess], attack: bytes
) -> None:
    several, one = (_end(_exchange(server.grpc, attack)) for server in servers)
    assert several == one
    for server in servers:
        _vanish(server.grpc, attack)
        _vanish(server.grpc, attack[: len(attack) * 2 // 3])
        _check_well_behaved(server)


FLOODS = (
    "WINDOW_UPDATEs", "WINDOW_UPDATEs of 0 on streams", "SETTINGS", "PINGs", "PRIORITY on itself", "rapid resets",
    "unknown frames", "empty DATA", "empty CONTINUATION frames", "many headers",
)  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS)
def test_flood_ends_its_connection(servers: tuple[ServerProcess, ServerProcess], flood: str) -> None:
    for server in servers:
        assert _end(_exchange(server.grpc, CONNECTIONS[flood]))[0] == ErrorCode.ENHANCE_YOUR_CALM
