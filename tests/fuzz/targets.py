"""What strangers may send: a function of bytes for each decoder. `make fuzz` searches for inputs that it fails with.

A function raises nothing but what its target allows, within bounds of time and memory, whatever the bytes are.
"""

import io
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from botocore.eventstream import EventStreamBuffer
from google.protobuf.message import DecodeError
from hpack import Encoder

from halimede.config.normalise import normalise
from halimede.config.parse import parse_json, parse_text
from halimede.config.signature import Signature, TensorSpec
from halimede.config.validate import find_problems, find_warnings
from halimede.core.datatypes import BYTES, FP32
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.frontends.grpc.codec_request import Decoding
from halimede.frontends.grpc.codec_request import RequestDecoder as GrpcDecoder
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest
from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.compression import WBITS, gzip
from halimede.frontends.http.codec.request import RequestDecoder as HttpDecoder
from halimede.frontends.inflation import InflateError, Inflater, inflate
from halimede.frontends.openai.chat_template import ChatTemplate
from halimede.hosting.access.signature import read_signature, verify
from halimede.hosting.errors import ApiError
from halimede.hosting.routing.event_stream import payload_part, stream_error
from halimede.hosting.store.aws_chunks import AwsChunks
from halimede.hosting.store.s3_xml import element, parse
from halimede.http1.head import Refusal, parse_head
from halimede.repository.archive_stream import ArchiveError
from halimede.repository.archives import Rules, extract
from tests.frontends.grpc.service_fakes import infer_request
from tests.frontends.grpc.transport.wire import ECHO, STREAM, message
from tests.frontends.http.serving import get, post
from tests.fuzz.connections import http1, http1_host, http2
from tests.repository.archive_entries import archive, directory, file, hard_link, symlink
from tests.repository.test_archives_random import bystanders

CORPUS = Path(__file__).parent / "corpus"
"""Inputs that failed once, by the name of their target."""

SECONDS = 2.0
"""CPU time that one input may take, with the fuzzer's own work."""

MEBIBYTES = 256
"""Memory that one input may take."""
_CLEAR = Path("/proc/self/clear_refs")
_PEAK = "5"
"""What resets the peak of the memory (proc(5))."""


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder.

    Attributes:
        name: of the target, and of its directories.
        run: gives it bytes.
        allowed: what it may raise.
        seeds: inputs to begin with.
        longest: bytes of the longest input worth trying.
        framework: it imports this framework, which other tests are not to share a process with.
    """

    name: str
    run: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
    longest: int = 4096
    framework: str = ""


class SlowInputError(AssertionError):
    """An input took more time, or more memory, than it may."""


def check(target: Target, data: bytes) -> None:
    """Give a target an input.

    Raises:
        Exception: what the target does not allow; a SlowInputError if it takes too much.
    """
    with suppress(OSError):  # begin anew: something before may have needed more
        _CLEAR.write_text(_PEAK)
    before, peak = time.thread_time(), _peak()
    with suppress(*target.allowed):
        target.run(data)
    took, grown = time.thread_time() - before, _peak() - peak
    if took > SECONDS:
        raise SlowInputError(f"{len(data)} bytes took {took:.1f} s")
    if grown > MEBIBYTES << 20:
        raise SlowInputError(f"{len(data)} bytes took {grown >> 20} MiB")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def recorded(name: str) -> list[Path]:
    """The inputs of a target that failed once."""
    return sorted((CORPUS / name).glob("*"))


# inference requests

_SPECS = {name: TensorSpec(name, datatype, (2,), (2,)) for name, datatype in (("IN", FP32), ("TEXT", BYTES))}
_SIGNATURE = Signature(0, _SPECS, {}, decoupled=False)


def _infer_json(data: bytes) -> None:
    HttpDecoder(1 << 20).decode(memoryview(data), None, "m", _SIGNATURE)


def _infer_binary(data: bytes) -> None:
    length = int.from_bytes(data[:2], "big")
    HttpDecoder(1 << 20).decode(memoryview(data[2:]), str(length), "m", _SIGNATURE)


def _infer_grpc(data: bytes) -> None:
    """What is read is what protobuf reads."""
    decoded = GrpcDecoder().decode(memoryview(data))
    assert not isinstance(decoded, Decoding)  # without processes that decode large ones
    plan, identifier, tensors = decoded
    request = plan.request(identifier, tensors, lambda *_: None, 7, None)
    expected = ModelInferRequest.FromString(data)
    assert (request.model_name, request.id) == (expected.model_name, expected.id)
    assert list(request.inputs) == [entry.name for entry in expected.inputs]
    if expected.raw_input_contents:
        raw = list(expected.raw_input_contents)[: len(expected.inputs)]
        assert [bytes(tensor.data) for tensor in request.inputs.values()] == raw


def _inflate(data: bytes) -> None:
    compressed, wbits = memoryview(data[1:]), WBITS["gzip" if data[:1] > b"\x7f" else "deflate"]
    content = inflate(compressed, wbits, 1 << 20)
    assert len(content) <= 1 << 20
    inflater = Inflater(compressed, wbits, 1 << 20)
    while not inflater.complete:
        inflater.step()
    assert inflater.take() == content


def _json_request() -> bytes:
    return orjson.dumps(
        {
            "id": "1",
            "parameters": {"sequence_id": 1, "sequence_start": True, "binary_data_output": True, "x": 1.5},
            "inputs": [
                {"name": "IN", "shape": [2], "datatype": "FP32", "data": [[1.5], [-2]]},
                {"name": "TEXT", "shape": [2], "datatype": "BYTES", "data": ["a\n", "\u00fc"]},
            ],
            "outputs": [{"name": "OUT", "parameters": {"classification": 2}}],
        }
    )


def _binary_request() -> bytes:
    inputs = [
        {"name": "IN", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": 8}},
        {"name": "TEXT", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": 9}},
    ]
    text = orjson.dumps({"inputs": inputs})
    return len(text).to_bytes(2, "big") + text + bytes(8) + b"\1\0\0\0a\0\0\0\0"


# connections


def _http2_seed() -> bytes:
    def block(path: str) -> bytes:
        fields = {":method": "POST", ":scheme": "http", ":path": path, "te": "trailers"}
        return Encoder().encode(
            [*fields.items(), ("content-type", "application/grpc"), ("grpc-timeout", "1S")]
        )

    sent = [
        frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block(ECHO)),
        frames.frame(frames.DATA, frames.END_STREAM, 1, message(b"one")),
        frames.frame(frames.HEADERS, 0, 3, block(STREAM)[:9]),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, 3, block(STREAM)[9:]),
        frames.frame(frames.DATA, frames.PADDED, 3, b"\1" + message(b"two") + message(b"") + b"\0"),
        frames.window_update(3, 5),
        frames.ping(bytes(8)),
        frames.frame(frames.PRIORITY, 0, 3, bytes(5)),
        frames.rst_stream(3, frames.ErrorCode.CANCEL),
        frames.settings({frames.INITIAL_WINDOW_SIZE: 1}),
        frames.goaway(0, frames.ErrorCode.NO_ERROR),
    ]
    return b"".join(sent)


_CHUNKED = (
    b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\nT: u\r\n\r\n"
)
_HTTP1 = (
    b"\xff" + get("/a?b#c", "Connection: keep-alive") + post(b"body") + _CHUNKED + get("/"),
    b"\x00"
    + post(b"x", "http://host/path", "Expect: 100-continue")
    + b"\r\n\r\n"
    + get("/", "Connection: close"),
    b"\x07" + b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nHEAD /y HTTP/1.1\r\n\r\nBAD\r\n\r\n",
)


# configurations and archives


def _config_text(data: bytes) -> None:
    _complete(parse_text(data.decode("utf-8", "surrogateescape"), "config.pbtxt"))


def _config_json(data: bytes) -> None:
    _complete(parse_json(data.decode("utf-8", "replace")))


def _complete(config: Any) -> None:
    normalise(config)
    find_problems(config)
    find_warnings(config)


_CONFIG = b"""name: "m" platform: 'onnxruntime_onnx' max_batch_size: 8 # a comment
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1, 2 ] reshape { shape: [ 2 ] } } ]
output { name: "y" data_type: TYPE_STRING dims: 1 label_filename: "labels.txt" }
instance_group [ { count: 2 kind: KIND_CPU rate_limiter { resources { name: "r" count: 1 } } } ]
dynamic_batching { preferred_batch_size: [ 4 ] priority_levels: 2 default_priority_level: 1 }
version_policy: { latest { num_versions: 1 } } parameters { key: "k" value: { string_value: "v" } }
model_warmup { name: "w" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: 2 zero_data: true } } }
"""


_ENSEMBLE = b"""platform: "ensemble"
ensemble_scheduling { step { model_name: "a" model_version: -1 input_map { key: "a" value: "x" } } }
"""


def _archive(data: bytes) -> None:
    with bystanders() as target:
        extract(io.BytesIO(data), target, Rules(entries=50, ratio=1000, ratio_from=1_000_000))


def _archive_seed(mode: str) -> bytes:
    entries = (
        directory("a"),
        file("a/b", b"x" * 50),
        symlink("c", "a/b"),
        hard_link("d", "a/b"),
        file("e" * 120),
    )
    return bytes(archive(*entries, mode=mode))


# texts


def _template(data: bytes) -> None:
    ChatTemplate(data.decode("utf-8", "replace"), {"bos_token": "<s>"})


_TEMPLATE = (
    b"{{ bos_token }}{% for message in messages if message.role != 'system' %}{%- set x = loop.index0 % 2 -%}"
    b"{{ message['role'] | upper }}: {{ message.content | trim | tojson }}{% generation %}{{ x }}{% endgeneration %}"
    b"{% break %}{% endfor %}{% if add_generation_prompt %}{{ raise_exception('no') }}{% endif %}"
)


@cache
def _words() -> Any:
    from examples.chat.language_model import make_tokenizer
    from halimede.backends.transformers.grammars import Grammars

    words = make_tokenizer(["one two three", "naïve"], 300)
    return Grammars(words, frozenset((words.eos_token_id,)))


def _grammar(data: bytes) -> None:
    from halimede.backends.language.structure import read_response_format, read_structure

    text = data.decode("utf-8", "replace")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InvalidArgumentError("not JSON") from None
    is_format = isinstance(document, dict) and "type" in document
    structure = (
        read_response_format(document) if is_format else read_structure("structured_outputs", document)
    )
    if structure is not None:
        _words().matcher(structure)


# the host


def _signature(data: bytes) -> None:
    head = parse_head(data)
    if head is None:
        return
    signature = read_signature(head)
    if signature is not None:
        target = head.path + (f"?{head.query}" if head.query else "")
        verify(head, target, None, signature, "secret", datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC))
        raise AssertionError("a signature was right without the secret")


_SCOPE = b"AKID/20240506/eu-west-1/s3/aws4_request"
_SIGNED = (
    b"PUT /bucket/key?a=b&c HTTP/1.1\r\nHost: h\r\nX-Amz-Date: 20240506T070809Z\r\nX-Amz-Content-SHA256: ab\r\n"
    b"Authorization: AWS4-HMAC-SHA256 Credential=" + _SCOPE + b", SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
    b"Signature=" + b"0" * 64 + b"\r\n\r\n",
    b"GET /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" + _SCOPE.replace(b"/", b"%2F")
    + b"&X-Amz-Date=20240506T070809Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature="
    + b"0" * 64 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /b/k?AWSAccessKeyId=a&Signature=b&Expires=1714979289 HTTP/1.1\r\nHost: h\r\n\r\n",
)  # fmt: skip


def _s3_xml(data: bytes) -> None:
    """What is read can be written, and is read the same again."""
    root = parse(data, "Delete")
    text = root.text
    if all(character in "\t\n" or character >= " " for character in text):
        assert parse(element("Delete", text), "Delete").text == text


def _aws_chunks(data: bytes) -> None:
    """What is taken does not depend on how the bytes arrive."""
    size = (data[0] if data else 0) + 1
    taken: list[tuple[bytes, str]] = []
    for step in (size, len(data) + 1):
        got = bytearray()
        chunks = AwsChunks(got.extend)
        try:
            for at in range(1, len(data), step):
                chunks.feed(data[at : at + step])
            chunks.finish()
            taken.append((bytes(got), str(chunks.trailers)))
        except ApiError as error:
            taken.append((b"", error.code))
    assert taken[0] == taken[1]


def _event_stream(data: bytes) -> None:
    """What is written is what AWS's own client reads, in pieces of any size."""
    size = (data[0] if data else 0) + 1
    parts = [data[at : at + size] for at in range(1, len(data), size)]
    text = data.decode("utf-8", "replace")
    stream = b"".join(map(payload_part, parts)) + stream_error(text, "StreamBroken")
    buffer = EventStreamBuffer()
    events = []
    for at in range(0, len(stream), size):
        buffer.add_data(stream[at : at + size])
        events += list(buffer)
    assert [event.payload for event in events[:-1]] == parts
    assert orjson.loads(events[-1].payload) == {"Message": text, "ErrorCode": "StreamBroken"}


TARGETS = {
    target.name: target
    for target in (
        Target("http1", http1, (), _HTTP1),
        Target("http1_host", http1_host, (), _HTTP1),
        Target(
            "http2", http2, (), (b"\x01" + _http2_seed(), b"\x7e" + _http2_seed(), b"\x7f" + frames.PREFACE)
        ),
        Target("infer_json", _infer_json, (HalimedeError,), (_json_request(),)),
        Target("infer_binary", _infer_binary, (HalimedeError,), (_binary_request(),)),
        Target(
            "infer_grpc",
            _infer_grpc,
            (HalimedeError, DecodeError),
            (infer_request(b"12345678", identifier="id", shape=(2,)).SerializeToString(),),
        ),
        Target("inflate", _inflate, (InflateError,), (b"\xff" + gzip((b"content" * 9,), 6),)),
        Target("config_text", _config_text, (InvalidArgumentError,), (_CONFIG, _ENSEMBLE)),
        Target(
            "config_json",
            _config_json,
            (InvalidArgumentError,),
            (
                b'{"name":"m","max_batch_size":2,"input":[{"name":"x","data_type":"TYPE_FP32","dims":["-1",2]}]}',
            ),
        ),
        Target(
            "archives",
            _archive,
            (ArchiveError,),
            tuple(_archive_seed(mode) for mode in ("w", "w:gz", "w:bz2", "w:xz")),
            longest=16_384,
        ),
        Target("templates", _template, (InvalidArgumentError,), (_TEMPLATE,), longest=1024),
        Target(
            "grammars",
            _grammar,
            (InvalidArgumentError,),
            (
                b'{"regex":"[a-z]{2,5}\\\\d"}',
                b'{"grammar":"start: \\"a\\" | start \\"b\\""}',
                b'{"choice":["a","b"]}',
                b'{"type":"json_schema","json_schema":{"strict":true,"schema":{"type":"object","properties":{"a":{}}}}}',
                b'{"json":{"properties":{"a":{"format":"date"},"b":{"$ref":"#/$defs/c"}},"$defs":{"c":{"enum":[1]}}}}',
            ),
            longest=512,
            framework="transformers",
        ),
        Target("signatures", _signature, (ApiError, Refusal), _SIGNED),
        Target(
            "s3_xml",
            _s3_xml,
            (ApiError,),
            (
                b'<?xml version="1.0" encoding="UTF-8"?><Delete xmlns="x"><Object><Key>a&amp;b</Key></Object></Delete>',
            ),
        ),
        Target(
            "aws_chunks",
            _aws_chunks,
            (),
            (b"\x03" + b"5;chunk-signature=ab\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n",),
        ),
        Target("event_streams", _event_stream, (), (b"\x05" + b"some bytes of a response",)),
    )
}
"""All targets, by name."""
