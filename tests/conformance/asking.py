"""Steps by the names of what they ask for."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from tests.conformance.answers import Answer
from tests.conformance.steps import Files, Http, Only, Rpc, Step, Until

Headers = dict[str, str] | None
PYTHON = 'backend: "python"\n'


def get(path: str, headers: Headers = None) -> Http:
    """A GET."""
    return Http("GET", path, headers=pairs(headers))


def post(path: str, body: Any = b"", headers: Headers = None) -> Http:
    """A POST of bytes or text as they are, and of anything else as JSON."""
    if isinstance(body, str):
        body = body.encode()
    return Http("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), pairs(headers))


def pairs(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Headers as a step holds them."""
    return tuple((headers or {}).items())


def tensor(
    name: str, datatype: str, data: Any, shape: list[int] | None = None, **members: Any
) -> dict[str, Any]:
    """An input in JSON; its shape is the data's, if no other is given."""
    found = list(np.shape(data)) if shape is None else shape
    return {"name": name, "datatype": datatype, "shape": found, "data": data, **members}


def infer(model: str, *inputs: Any, headers: Headers = None, **members: Any) -> Http:
    """An inference over HTTP in JSON; `model` may be `name/versions/3`."""
    return post(f"/v2/models/{model}/infer", {"inputs": list(inputs), **members}, headers)


def binary(model: str, header: Any, *parts: bytes, length: int | str | None = None, **headers: str) -> Http:
    """An inference over HTTP with binary parts after the JSON; `length` is told for the JSON's if it is given."""
    text = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    told = {"Inference-Header-Content-Length": str(len(text) if length is None else length), **headers}
    return post(f"/v2/models/{model}/infer", text + b"".join(parts), told)


def strings(*texts: bytes) -> bytes:
    """BYTES elements as the protocol has them, each after its length."""
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def message(
    model: str,
    *inputs: tuple[str, Any],
    id: str = "",  # noqa: A002
    version: str = "",
    outputs: Iterable[str] = (),
    **parameters: Any,
) -> Any:
    """A ModelInferRequest with the arrays as raw contents; each parameter gets the kind of its value."""
    request = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    for name, array in inputs:
        datatype = np_to_triton_dtype(array.dtype)
        request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        raw = serialize_byte_tensor(array).item() if datatype == "BYTES" and array.size else array.tobytes()
        request.raw_input_contents.append(raw if array.size else b"")
    for name in outputs:
        request.outputs.add(name=name)
    for name, value in parameters.items():
        put(request.parameters, name, value)
    return request


def put(parameters: Any, name: str, value: Any) -> None:
    """Set a parameter of a message."""
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    if isinstance(value, pb.InferParameter):
        parameters[name].CopyFrom(value)
    else:
        setattr(parameters[name], kinds[type(value)], value)


def rpc(method: str, request: Message | None = None, metadata: Headers = None, **members: Any) -> Rpc:
    """A gRPC call: of that message, or of one with those members."""
    return Rpc(
        method, getattr(pb, f"{method}Request")(**members) if request is None else request, pairs(metadata)
    )


def grpc_infer(model: str, *inputs: tuple[str, Any], **options: Any) -> Rpc:
    """A ModelInfer."""
    return Rpc("ModelInfer", message(model, *inputs, **options))


def load(model: str, body: Any = b"") -> Http:
    """A load over HTTP."""
    return post(f"/v2/repository/models/{model}/load", body)


def unload(model: str, body: Any = b"") -> Http:
    """An unload over HTTP; it is over only later."""
    return post(f"/v2/repository/models/{model}/unload", body)


def config(model: str) -> Http:
    """The model's configuration."""
    return get(f"/v2/models/{model}/config")


def index(*models: str, body: Any = b"") -> Only:
    """The rows of those models in the index, in the order of name and version."""
    return Only(post("/v2/repository/index", body), lambda answer: rows_of(answer, models))


def rows_of(answer: Answer, models: tuple[str, ...]) -> Answer:
    """The index with each row under its name and version."""
    rows: dict[str, dict[str, Any]] = {}
    for path, value in answer.items():
        row, dot, member = path.partition("].")
        if dot:
            rows.setdefault(row, {})[member] = value
    kept: Answer = {"status": answer.get("status")}
    for found in rows.values():
        if found.get("name") in models:
            name = f"{found['name']} {found.get('version', '-')}"
            kept |= {f"{name}.{member}": value for member, value in found.items()}
    return kept


def gone(model: str) -> Until:
    """Wait until no version of the model is ready, nor on its way."""
    return Until(
        index(model),
        lambda answer: not any(value in ("READY", "UNLOADING", "LOADING") for value in answer.values()),
        compared=False,
    )


def python_model(name: str, configuration: str, source: str, **files: str | bytes | None) -> Files:
    """A Python model's files; more may follow, as `labels.txt`."""
    return Files(name, {"config.pbtxt": configuration, "1/model.py": source, **files})


def loaded(name: str, configuration: str, source: str, *then: Step) -> tuple[Step, ...]:
    """Write a Python model, load it, do the rest, and unload it."""
    return (python_model(name, configuration, source), load(name), *then, unload(name), gone(name))
