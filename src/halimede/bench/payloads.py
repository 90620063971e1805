"""The bytes of requests, made before the measurement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from halimede.bench.address import Address
from halimede.bench.data import Row, as_json
from halimede.bench.errors import BenchError
from halimede.bench.model import Model
from halimede.frontends.grpc.kserve_pb2 import InferParameter, ModelInferRequest

Parameters = Mapping[str, bool | int | str]


@dataclass(frozen=True, slots=True)
class Step:
    """The place of a request in its sequence.

    Attributes:
        sequence: the correlation id.
        start: it is the sequence's first request.
        end: it is the sequence's last request.
    """

    sequence: int
    start: bool
    end: bool


@dataclass(frozen=True, slots=True)
class HttpPayload:
    """A request over HTTP.

    Attributes:
        head: the request line and headers, each with its line end, without those that tell lengths.
        document: the JSON in front of the tensors, which begins with the request's parameters, or a whole body.
        binary: tensors behind the JSON.
        kserve: the body is KServe's, so that the head tells where tensors begin.
    """

    head: bytes
    document: bytes
    binary: bytes = b""
    kserve: bool = False

    def message(self, step: Step | None = None) -> bytes:
        """All bytes of the request."""
        document = self.document
        if step is not None:
            sequence = (
                f'"sequence_id":{step.sequence},"sequence_start":{_json(step.start)},'
                f'"sequence_end":{_json(step.end)},'
            ).encode()
            document = document.replace(b'"parameters":{', b'"parameters":{' + sequence, 1)
        lengths = b"Content-Length: %d\r\n" % (len(document) + len(self.binary))
        if self.kserve:
            lengths += b"Inference-Header-Content-Length: %d\r\n" % len(document)
        return b"".join((self.head, lengths, b"\r\n", document, self.binary))


@dataclass(frozen=True, slots=True)
class GrpcPayload:
    """A request over gRPC: `ModelInferRequest` as bytes."""

    request: bytes

    def message(self, step: Step | None = None) -> bytes:
        """The request behind gRPC's five bytes; Protobuf merges what is appended."""
        request = self.request
        if step is not None:
            request += ModelInferRequest(
                parameters={
                    "sequence_id": InferParameter(int64_param=step.sequence),
                    "sequence_start": InferParameter(bool_param=step.start),
                    "sequence_end": InferParameter(bool_param=step.end),
                }
            ).SerializeToString()
        return b"\0" + len(request).to_bytes(4) + request


Payload = HttpPayload | GrpcPayload


def _json(flag: bool) -> str:
    return "true" if flag else "false"


def head(address: Address, path: str, headers: Mapping[str, str]) -> bytes:
    """A request line and headers.

    Raises:
        BenchError: a header has a line end in it.
    """
    lines = [f"POST {address.path}{path} HTTP/1.1", f"Host: {address.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise BenchError("Headers cannot have line ends in them")
    return "\r\n".join([*lines, ""]).encode()


def kserve_path(model: Model, call: str) -> str:
    """The path of a call of a model."""
    version = f"/versions/{model.version}" if model.version else ""
    return f"/v2/models/{model.name}{version}/{call}"


def over_http(
    address: Address, model: Model, row: Row, parameters: Parameters, headers: Mapping[str, str]
) -> HttpPayload:
    """`infer` with binary tensors in both directions."""
    inputs = [
        {
            "name": each.name,
            "shape": each.shape,
            "datatype": each.datatype,
            "parameters": {"binary_data_size": len(each.raw)},
        }
        for each in row
    ]
    document = orjson.dumps({"parameters": {**parameters, "binary_data_output": True}, "inputs": inputs})
    return HttpPayload(
        head(address, kserve_path(model, "infer"), headers),
        document,
        b"".join(each.raw for each in row),
        kserve=True,
    )


def generate_stream(
    address: Address, model: Model, row: Row, parameters: Parameters, headers: Mapping[str, str]
) -> HttpPayload:
    """`generate_stream`: inputs in JSON by their names, and server-sent events as the answer."""
    values = {each.name: _unwrapped(as_json(each)) for each in row}
    body = orjson.dumps({**values, **parameters})
    return HttpPayload(
        head(address, kserve_path(model, "generate_stream"), {"Content-Type": "application/json", **headers}),
        body,
    )


def _unwrapped(values: Sequence[object]) -> object:
    return values[0] if len(values) == 1 else values


def over_grpc(model: Model, row: Row, parameters: Parameters) -> GrpcPayload:
    """`ModelInfer` with raw tensors."""
    request = ModelInferRequest(
        model_name=model.name,
        model_version=model.version,
        raw_input_contents=[each.raw for each in row],
    )
    for each in row:
        request.inputs.add(name=each.name, datatype=each.datatype, shape=each.shape)
    for name, value in parameters.items():
        if isinstance(value, bool):
            request.parameters[name].bool_param = value
        elif isinstance(value, int):
            request.parameters[name].int64_param = value
        else:
            request.parameters[name].string_param = value
    return GrpcPayload(request.SerializeToString())


def plain(address: Address, path: str, body: bytes, headers: Mapping[str, str]) -> HttpPayload:
    """A body as it is, for routes that are not KServe's."""
    return HttpPayload(head(address, path, headers), body)
