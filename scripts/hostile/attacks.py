"""What strangers have sent to servers, each a function from the server's addresses to what came of it."""

import base64
import gzip
import http.client
import json
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import grpc

from halimede.frontends.grpc import kserve_pb2
from halimede.frontends.grpc.transport.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from scripts.hostile.wire import GREETING, ask, call, connect, counted, flood, post, status, together

INFER = "/v2/models/identity/infer"
HELD_S = 5.0
"""How long connections are held that send or read nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the server listens, as ``host:port``."""

    http: str
    grpc: str


Attack = Callable[[Target], str]


def infer_json(data: str, shape: str, **more: str) -> bytes:
    """The body of a request whose data is given as JSON."""
    entry = f'{{"name":"IN","datatype":"FP32","shape":{shape},"data":{data}}}'
    rest = "".join(f',"{key}":{value}' for key, value in more.items())
    return f'{{"inputs":[{entry}]{rest}}}'.encode()


def ones(count: int) -> str:
    """JSON of so many ones."""
    return "[" + ",".join(["1"] * count) + "]"


# Requests over HTTP


def compressed_numbers(target: Target) -> str:
    """48 KB that unpack to 25 million numbers, to each route that reads JSON."""
    body = gzip.compress(b'{"x":' + ones(25_000_000).encode() + b"}")
    routes = [INFER, "/v2/models/identity/generate", "/v2/models/identity/generate_stream"]
    return counted(ask(target.http, post(route, body, "Content-Encoding: gzip")) for route in routes * 4)


def many_compressed_bodies(target: Target) -> str:
    """Forty requests at once, of 30 KB that unpack to 15 million numbers, all of which become a tensor."""
    outputs = '[{"name":"OUT","parameters":{"binary_data":true}}]'
    numbers = infer_json(ones(15_000_000), "[15000000]", outputs=outputs)
    request = post(INFER, gzip.compress(numbers), "Content-Encoding: gzip")
    return together(40, lambda: ask(target.http, request), threads=40)


def nested_lists(target: Target) -> str:
    """15 million lists, in one another and after one another."""
    deep = "[" * 7_500_000 + "]" * 7_500_000
    flat = "[" + ",".join(["[]"] * 15_000_000) + "]"
    return counted(ask(target.http, post(INFER, infer_json(data, "[1]"))) for data in (deep, flat))


def empty_strings(target: Target) -> str:
    """20 million empty strings."""
    data = "[" + ",".join(['""'] * 20_000_000) + "]"
    body = infer_json(data, "[20000000]").replace(b"FP32", b"BYTES")
    return ask(target.http, post(INFER, body))


def many_names(target: Target) -> str:
    """Millions of inputs, requested outputs and parameters."""
    outputs = infer_json("[1]", "[1]", outputs="[" + ",".join(['{"name":"OUT"}'] * 4_000_000) + "]")
    inputs = b'{"inputs":[' + b",".join([b'{"name":"IN"}'] * 4_000_000) + b"]}"
    parameters = ",".join(f'"p{number}":1' for number in range(4_000_000))
    bodies = [outputs, inputs, infer_json("[1]", "[1]", parameters=f"{{{parameters}}}")]
    return counted(ask(target.http, post(INFER, body)) for body in bodies)


def large_json(target: Target) -> str:
    """Six million numbers as JSON, whose answer is JSON too, from four clients."""
    request = post(INFER, infer_json(ones(6_000_000), "[6000000]"))
    return together(4, lambda: ask(target.http, request))


def strange_requests(target: Target) -> str:
    """Lengths, shapes and framings that make no sense."""
    one = infer_json("[1]", "[1]")
    head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\n".encode()
    shape = "[" + ",".join(["1"] * 65) + "]"
    requests = [
        head + b"Content-Length: " + b"9" * 5001 + b"\r\n\r\n" + one,
        head + b"Content-Length: -1\r\n\r\n" + one,
        head + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n" + one,
        head + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        head + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 300 + b"\r\n",
        head.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        head + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n",
        head + b"X: a\x00b\r\n\r\n",
        head + b"A: b\r\n" * 1000 + b"\r\n",
        post(INFER, infer_json("[1]", shape)),
        post(INFER, infer_json("[1]", "[-1]")),
        post(INFER, infer_json("[1]", "[99999999999999999999]")),
        post(INFER, infer_json("[1]", "[4611686018427387904,4]")),
        post(INFER, one, "Inference-Header-Content-Length: " + "9" * 5001),
        post(INFER, b"\xff\xfe{" * 100),
    ]
    return counted(ask(target.http, request) for request in requests)


def pipelined(target: Target) -> str:
    """20,000 requests in one write, of a client that reads nothing for a while."""
    with connect(target.http) as client:
        client.settimeout(HELD_S)
        with suppress(TimeoutError, OSError):
            client.sendall(post(INFER, infer_json("[1]", "[1]")) * 20_000)
        with suppress(OSError):
            return f"read: {status(client)}"
    return "closed"


# Connections


def half_open(target: Target) -> str:
    """3,000 connections that begin a request and wait."""
    return held(target.http, b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: l", 3000)


def half_bodies(target: Target) -> str:
    """500 connections that announce 100 MB and send a byte."""
    head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n".encode()
    return held(target.http, head + b"{", 500)


def half_calls(target: Target) -> str:
    """3,000 connections of HTTP/2 whose headers do not end."""
    return held(target.grpc, GREETING + frame(HEADERS, 0, 1, call("ModelInfer")), 3000)


def held(address: str, data: bytes, count: int) -> str:
    """Send this on so many connections, and hold them."""
    with ExitStack() as stack:
        opened = 0
        for _ in range(count):
            try:
                stack.enter_context(connect(address)).sendall(data)
                opened += 1
            except OSError:
                continue
        time.sleep(HELD_S)
    return f"{opened} of {count} held for {HELD_S:.0f} s"


def unread_answers(target: Target) -> str:
    """40 clients that ask for 100 MB each, and read nothing."""
    body = infer_json("[26214400]", "[1]", outputs='[{"name":"OUT","parameters":{"binary_data":true}}]')
    with ExitStack() as stack:
        for _ in range(40):
            with suppress(OSError):
                client = stack.enter_context(connect(target.http))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.sendall(post("/v2/models/zeros/infer", body))
        time.sleep(HELD_S)
    return f"held for {HELD_S:.0f} s"


# Messages over gRPC


def unfinished_messages(target: Target) -> str:
    """200 calls that end before their message is complete."""
    message = struct.pack(">BI", 0, 1000) + b"\x0a"
    frames = frame(HEADERS, END_HEADERS, 1, call("ModelInfer")) + frame(DATA, END_STREAM, 1, message)

    def send() -> str:
        with connect(target.grpc) as client:
            client.sendall(GREETING + frames)
            return "answered" if client.recv(1 << 16) else "closed"

    return together(200, send)


def compressed_messages(target: Target) -> str:
    """Eight messages of 400 KB that unpack to 400 MB each."""
    body = gzip.compress(bytes(400 << 20))
    message = struct.pack(">BI", 1, len(body)) + body
    begin = GREETING
    begin += frame(HEADERS, END_HEADERS, 1, call("ModelInfer", ("grpc-encoding", "gzip")))
    pieces = [message[at : at + 16384] for at in range(0, len(message), 16384)]

    def send() -> str:
        with connect(target.grpc) as client:
            client.sendall(begin)
            with suppress(OSError):  # beyond the window the server reads when it likes
                for piece in pieces[:-1]:
                    client.sendall(frame(DATA, 0, 1, piece))
                client.sendall(frame(DATA, END_STREAM, 1, pieces[-1]))
            with suppress(OSError):
                while data := client.recv(1 << 16):
                    if b"grpc-status" in data or b"grpc-message" in data or len(data) > 60:
                        return "answered"
            return "closed"

    return together(8, send)


def typed_contents(target: Target) -> str:
    """25 million numbers as typed contents of a protobuf message, from two clients."""
    count = 25_000_000
    request = kserve_pb2.ModelInferRequest(model_name="identity")
    tensor = request.inputs.add(name="IN", datatype="FP32", shape=[count])
    tensor.contents.fp32_contents.extend([1.0] * count)
    data = request.SerializeToString()
    del request, tensor
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

    def send() -> str:
        with grpc.insecure_channel(target.grpc, options=options) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            try:
                infer(data, timeout=60)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

    return together(2, send)


def floods() -> Iterator[tuple[str, Attack]]:
    """Frames of HTTP/2 that cost the sender nothing, each 16 MB."""
    open_call = frame(HEADERS, END_HEADERS, 1, call("ModelInfer"))
    headers = call("ModelInfer")
    many = b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, headers) for stream in range(1, 999, 2))
    blocks = {
        "pings": (b"", frame(PING, 0, 0, bytes(8))),
        "settings": (b"", frame(SETTINGS, 0, 0)),
        "window updates of zero": (open_call, frame(WINDOW_UPDATE, 0, 1, bytes(4))),
        "window updates": (open_call, frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1")),
        "priorities on themselves": (open_call, frame(PRIORITY, 0, 1, b"\0\0\0\1\0")),
        "priorities": (b"", frame(PRIORITY, 0, 3, b"\0\0\0\1\0")),
        "resets": (b"", b"".join(
            frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
            for stream in range(1, 999, 2)
        )),
        "calls": (b"", many),
        "empty data": (open_call, frame(DATA, 0, 1)),
        "continuations": (frame(HEADERS, 0, 1, headers), frame(CONTINUATION, 0, 1)),
        "headers of a call": (b"", frame(HEADERS, END_HEADERS, 1, call("ModelInfer", *[("x", "y")] * 500))),
    }  # fmt: skip
    for name, (begin, block) in blocks.items():
        yield f"http2 {name}", partial(_flood, begin=begin, block=block)


def _flood(target: Target, begin: bytes, block: bytes) -> str:
    return flood(target.grpc, begin, block)


# Loads and shared memory


def loads(target: Target) -> str:
    """Configurations of loads that would take everything, five of each at once."""
    config: dict[str, Any] = {
        "backend": "identity",
        "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
    }
    sample = {"data_type": "TYPE_FP32", "dims": [1], "zero_data": True}
    warm_up = {"name": "w", "batch_size": 1, "count": 4_000_000_000, "inputs": {"IN": sample}}
    steps = [
        {
            "model_name": "neighbour",
            "input_map": {"IN": f"t{number}"},
            "output_map": {"OUT": f"t{number + 1}"},
        }
        for number in range(20_000)
    ]
    overrides = [
        {**config, "instance_group": [{"count": 1_000_000_000}]},
        {**config, "model_warmup": [warm_up]},
        {**config, "default_model_filename": "../../neighbour/1/model.py", "backend": "python"},
        {**config, "backend": "", "platform": "ensemble", "ensemble_scheduling": {"step": steps}},
    ]
    outcomes = []
    for override in overrides:
        body = json.dumps({"parameters": {"config": json.dumps(override)}}).encode()
        request = post("/v2/repository/models/identity/load", body)
        outcomes.append(together(5, partial(ask, target.http, request)))
    return "; ".join(outcomes)


def uploaded_files(target: Target) -> str:
    """Files of 200 MB in loads, from eight clients."""
    data = base64.b64encode(bytes(200 << 20))
    body = b'{"parameters":{"config":"{}","file:1/model.onnx":"' + data + b'"}}'
    return together(8, lambda: ask(target.http, post("/v2/repository/models/x/load", body)))


def regions(target: Target) -> str:
    """20,000 registrations of one region of shared memory, and of names that lead elsewhere."""
    outcomes = []
    memory = SharedMemory(create=True, size=64)
    connection = http.client.HTTPConnection(target.http, timeout=60)
    try:
        for number in range(20_000):
            key = memory.name if number < 19_990 else "/../../etc/passwd"
            body = json.dumps({"key": f"/{key}", "offset": 0, "byte_size": 64})
            try:
                connection.request("POST", f"/v2/systemsharedmemory/region/r{number}/register", body)
                with connection.getresponse() as response:
                    response.read()
                outcomes.append(str(response.status))
            except (OSError, http.client.HTTPException) as error:
                outcomes.append(type(error).__name__)
                connection.close()
    finally:
        with suppress(OSError, http.client.HTTPException):
            connection.request("POST", "/v2/systemsharedmemory/unregister", "{}")
            connection.getresponse().read()
        connection.close()
        memory.close()
        memory.unlink()
    return counted(outcomes)


# Language models


def complete(target: Target, **fields: Any) -> str:
    """Ask for a text."""
    body = json.dumps({"model": "text", "prompt": "The moon", "max_tokens": 4, **fields}).encode()
    return ask(target.http, post("/v1/completions", body, "Content-Type: application/json"))


def long_prompts(target: Target) -> str:
    """Prompts of 5 and 60 MB."""
    return counted(complete(target, prompt="word " * (size // 5)) for size in (5_000_000, 60_000_000))


def grammars(target: Target) -> str:
    """Patterns and schemas that take long to compile."""
    deep = '{"type":"array","minItems":1000,"items":' * 2000 + "{}" + "}" * 2000
    wide = {"type": "object", "properties": {f"p{n}": {"enum": list(range(100))} for n in range(5000)}}
    patterns = [
        "(a{1,1000}){1,1000}", "(((((a|b){1,99}){1,99}){1,99}){1,99})c", "(" * 5000 + ")" * 5000,
        "[ab]*a[ab]{5000}",
    ]  # fmt: skip
    regexes = [{"structured_outputs": {"regex": pattern}} for pattern in patterns]
    outcomes = [complete(target, **each) for each in regexes]
    outcomes.append(complete(target, structured_outputs={"json": wide}))
    body = f'{{"model":"text","prompt":"The moon","structured_outputs":{{"json":{deep}}}}}'.encode()
    return counted(
        [*outcomes, ask(target.http, post("/v1/completions", body, "Content-Type: application/json"))]
    )


def numbers(target: Target) -> str:
    """Numbers at the ends of what a float or an integer may be."""
    wrong: list[dict[str, Any]] = [
        {"temperature": 1e-320}, {"temperature": 1e308}, {"top_p": 1e-320}, {"seed": 10**4000},
        {"logit_bias": {"9" * 5000: 1}}, {"logit_bias": {"1": 10**4000}}, {"max_tokens": 10**30},
        {"n": 10**9}, {"stop": [""] * 100_000}, {"presence_penalty": float("nan")}, {"prompt": [10**30]},
    ]  # fmt: skip
    return counted(complete(target, **fields) for fields in wrong)


ATTACKS: dict[str, Attack] = {
    "compressed numbers": compressed_numbers,
    "many compressed bodies": many_compressed_bodies,
    "nested lists": nested_lists,
    "empty strings": empty_strings,
    "many names": many_names,
    "large JSON": large_json,
    "strange requests": strange_requests,
    "pipelined": pipelined,
    "half-open connections": half_open,
    "half bodies": half_bodies,
    "half calls": half_calls,
    "unread answers": unread_answers,
    "unfinished messages": unfinished_messages,
    "compressed messages": compressed_messages,
    "typed contents": typed_contents,
    **dict(floods()),
    "loads": loads,
    "uploaded files": uploaded_files,
    "regions": regions,
    "long prompts": long_prompts,
    "grammars": grammars,
    "numbers": numbers,
}
"""Name → attack, in the order in which they are made."""


def send(name: str, target: Target, answer: Connection) -> None:
    """Make an attack, with little priority and as many connections as the system allows, and say what came of it."""
    os.nice(19)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    answer.send(ATTACKS[name](target))
