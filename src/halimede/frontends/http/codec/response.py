"""An inference response to the parts of its body; outputs as bytes are views of the model's arrays."""

from collections.abc import Callable, Generator, Iterable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final

import orjson

from halimede.codec.json_pieces import is_large, json_pieces
from halimede.codec.json_tensors import json_from_tensor
from halimede.core.requests import InferResponse, ParameterValue
from halimede.core.tensors import Buffer, Tensor
from halimede.engine.served_model import ServedModel
from halimede.frontends.classification import classify, classify_in_steps, takes_steps
from halimede.frontends.http.codec.request_plan import RequestPlan
from halimede.frontends.http.codec.response_layout import BinaryOutput, Headers, Layout
from halimede.frontends.steps_of_work import whole

JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
LENGTH_HEADER: Final = "Inference-Header-Content-Length"

Encoded = tuple[list[Buffer], str, Headers]
"""The parts of a body, its media type, and the headers that it needs."""

Steps = Generator[None, None, Encoded]
"""What makes such parts in steps of about a millisecond."""

MAX_JSON_BYTES: Final = 268_435_456
"""What the JSON of a response may have, unless `--http-max-output-size` says otherwise."""

_JSON_ELEMENT: Final = 8
"""Bytes of a number as JSON, as a guess."""

Label = Callable[[int], tuple[str, Headers]]
"""The media type, and the headers, of a body that begins with so many bytes of JSON."""


def label_binary(json_bytes: int) -> tuple[str, Headers]:
    """The label of a body with binary outputs, as the KServe protocol says."""
    return BINARY, ((LENGTH_HEADER, str(json_bytes)),)


def encode_response(
    response: InferResponse,
    model: ServedModel,
    plan: RequestPlan,
    identifier: str,
    label: Label = label_binary,
    max_json: int = MAX_JSON_BYTES,
    classified: Mapping[str, Tensor] = MappingProxyType({}),
) -> Encoded | Steps:
    """The body of a response without error; with JSON that is large or many classes, what makes it in steps.

    Args:
        response: what the model gave.
        model: the model.
        plan: how the client wants the outputs.
        identifier: the request's, "" for none.
        label: how a body with binary outputs is labelled; for one plan always the same.
        max_json: bytes that the elements of its JSON outputs may have together.
        classified: the classes of outputs, where they are known.

    Raises:
        InvalidArgumentError: an output cannot be had in the form that the client wants. Steps raise it, too.
    """
    plain = not (identifier or response.parameters or response.repeated)
    if plain and plan.layout is not None:
        same = plan.layout.parts(model, response.outputs)
        if same is not None:
            return same, plan.layout.content_type, plan.layout.headers
    parts: list[Buffer] = [b""]
    outputs: list[BinaryOutput | dict[str, Any]] = []
    known: list[BinaryOutput] = []  # outputs whose elements are not in the JSON
    large: dict[int, tuple[str, Tensor]] = {}  # those whose elements take long, by their number
    plans, unlisted = plan.output_plans, plan.unlisted
    for name, output in response.tensors():
        wanted = plans.get(name) if plans else unlisted
        if wanted is None:
            continue
        tensor = output
        if wanted.classes:
            if not (classified or response.repeated) and takes_steps(tensor, wanted.classes):
                return _classified_steps(response, model, plan, identifier, label, max_json)
            if name in classified:
                tensor = classified[name]
            else:
                batched = model.signature.max_batch_size > 0
                tensor = classify(tensor, wanted.classes, model.labels.get(name, ()), batched)
        if wanted.binary:
            data = tensor.data
            if data:
                parts.append(data)
            known.append((name, tensor.datatype.name, tensor.shape, len(data)))
            outputs.append(known[-1])
        elif wanted.placed:
            outputs.append({"name": name, "datatype": tensor.datatype.name, "shape": tensor.shape})
            known.append((name, tensor.datatype.name, tensor.shape, 0))
        elif is_large(tensor):
            large[len(outputs)] = name, tensor
            outputs.append({"name": name, "datatype": tensor.datatype.name, "shape": tensor.shape})
        else:
            outputs.append(_json_output(name, tensor))
    if large:
        document = _document(model.name, model.version, outputs, response.parameters)
        if identifier:
            document = {"id": identifier, **document}
        return _steps(document, large, parts[1:], label, max_json)
    members = _members(model.name, model.version, outputs, response.parameters)
    head = b'{"id":%b,%b' % (orjson.dumps(identifier), members) if identifier else b"{" + members
    parts[0] = head
    content_type, headers = (JSON, ()) if len(parts) == 1 else label(len(head))
    if plain and len(known) == len(response.outputs):
        plan.layout = Layout((model.name, model.version), known, head, content_type, headers)
    return parts, content_type, headers


def _classified_steps(
    response: InferResponse,
    model: ServedModel,
    plan: RequestPlan,
    identifier: str,
    label: Label,
    max_json: int,
) -> Steps:
    """Make a body with many classes."""
    batched = model.signature.max_batch_size > 0
    classified = {}
    for name, tensor in response.tensors():
        wanted = plan.output_plans.get(name) if plan.output_plans else plan.unlisted
        if wanted is not None and wanted.classes:
            labels = model.labels.get(name, ())
            classified[name] = yield from classify_in_steps(tensor, wanted.classes, labels, batched)
    encoded = encode_response(response, model, plan, identifier, label, max_json, classified)
    return encoded if isinstance(encoded, tuple) else (yield from encoded)


def _members(
    name: str,
    version: int,
    outputs: Iterable[BinaryOutput | dict[str, Any]],
    parameters: Mapping[str, ParameterValue] | None = None,
) -> bytes:
    """The JSON of a response without its identifier, which is first, and without the brace before it."""
    document = _document(name, version, outputs, parameters)
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)[1:]


def _document(
    name: str,
    version: int,
    outputs: Iterable[BinaryOutput | dict[str, Any]],
    parameters: Mapping[str, ParameterValue] | None,
) -> dict[str, Any]:
    """What a response says, without its identifier; the outputs are last."""
    document: dict[str, Any] = {"model_name": name, "model_version": str(version)}
    if parameters:
        document["parameters"] = parameters
    document["outputs"] = [
        output if isinstance(output, dict) else _binary_output(*output) for output in outputs
    ]
    return document


def _steps(
    document: dict[str, Any],
    large: Mapping[int, tuple[str, Tensor]],
    binary: list[Buffer],
    label: Label,
    max_json: int,
) -> Steps:
    """Make a body whose outputs of these numbers lack their elements in the document."""
    outputs = document.pop("outputs")
    parts: list[Buffer] = [orjson.dumps(document)[:-1], b',"outputs":[']
    left = max_json
    for number, output in enumerate(outputs):
        if number:
            parts.append(b",")
        text = orjson.dumps(output, option=orjson.OPT_SERIALIZE_NUMPY)
        if number not in large:
            parts.append(text)
            continue
        parts += text[:-1], b',"data":'
        for piece in json_pieces(*large[number], left):
            parts.append(piece)
            left -= len(piece)
            yield
        parts.append(b"}")
    parts.append(b"]}")
    content_type, headers = label(sum(map(len, parts))) if binary else (JSON, ())
    return parts + binary, content_type, headers


def size_in_steps(response: InferResponse, max_json: int) -> int:
    """About what it takes to make the body of a response in steps: its tensors, and the JSON of them."""
    size = 0
    for _, tensor in response.tensors():
        size += len(tensor.data) if tensor.is_encoded else tensor.array.nbytes
        size += min(_JSON_ELEMENT * prod(tensor.shape), max_json)
    return size


def encode_whole(encoded: Encoded | Steps) -> Encoded:
    """Make all steps at once."""
    return encoded if isinstance(encoded, tuple) else whole(encoded)


def _binary_output(name: str, datatype: str, shape: tuple[int, ...], size: int) -> dict[str, Any]:
    parameters = {"binary_data_size": size}
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}


def _json_output(name: str, tensor: Tensor) -> dict[str, Any]:
    data = json_from_tensor(name, tensor)
    return {"name": name, "datatype": tensor.datatype.name, "shape": tensor.shape, "data": data}
