"""The calls over HTTP as an OpenAPI document, made from the routes that are served."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import halimede
from halimede.frontends.http.routes import Call

_MODEL: Final = "/v2/models/{model}"
_VERSIONS: Final = (_MODEL, f"{_MODEL}/versions/{{version}}")
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"


Paths = Mapping[str, Mapping[str, Any]]
"""What an OpenAPI document says of paths."""


class Described(NamedTuple):
    """What is said of a call.

    Attributes:
        paths: its paths, with names of parameters in braces.
        summary: what it does.
        body: the schema of its JSON body; "" for none.
        answer: the schema of its JSON answer; "" for an empty one.
        media: the media type of its answer.
    """

    paths: tuple[str, ...]
    summary: str
    body: str = ""
    answer: str = "Object"
    media: str = _JSON


def _versioned(rest: str) -> tuple[str, ...]:
    return tuple(f"{path}/{rest}" for path in _VERSIONS)


def _regions(kind: str, *rests: str) -> tuple[str, ...]:
    return tuple(f"/v2/{kind}sharedmemory/{rest}" for rest in rests)


_REGION: Final = "region/{region}/"

DESCRIBED: Final = {
    Call.SERVER_METADATA: Described(("/v2",), "Name, version and extensions of the server"),
    Call.SERVER_LIVE: Described(("/v2/health/live",), "Whether the server is live: 200 if so", answer=""),
    Call.SERVER_READY: Described(("/v2/health/ready",), "Whether the server is ready: 200 if so", answer=""),
    Call.INFER: Described(_versioned("infer"), "Run the model", "InferRequest", "InferResponse"),
    Call.ALL_STATISTICS: Described(("/v2/models/stats",), "Counts and times of all models"),
    Call.MODELS: Described(("/v2/models",), "The models that are ready", answer="Models"),
    Call.MODEL_METADATA: Described(_VERSIONS, "Inputs and outputs of a model", answer="Metadata"),
    Call.MODEL_READY: Described(_versioned("ready"), "Whether the model is ready: 200 if so", answer=""),
    Call.MODEL_CONFIG: Described(_versioned("config"), "The model's complete configuration"),
    Call.MODEL_STATISTICS: Described(_versioned("stats"), "Counts and times of a model"),
    Call.INDEX: Described(
        ("/v2/repository/index", "/v2/repository/{repository}/index"),
        "Every model of the repositories, with its state",
        "Object",
        "Index",
    ),
    Call.LOAD: Described(
        ("/v2/repository/models/{model}/load",), "Load or reload a model", "Object", answer=""
    ),
    Call.UNLOAD: Described(("/v2/repository/models/{model}/unload",), "Unload a model", "Object", answer=""),
    Call.GENERATE: Described(_versioned("generate"), "Run the model: plain JSON in and out", "Object"),
    Call.GENERATE_STREAM: Described(
        _versioned("generate_stream"),
        "Run the model: plain JSON in, an event for each response out",
        "Object",
        media=_EVENTS,
    ),
    Call.SYSTEM_SHARED_MEMORY_STATUS: Described(
        _regions("system", "status", _REGION + "status"), "Regions of shared memory", answer="List"
    ),
    Call.SYSTEM_SHARED_MEMORY_REGISTER: Described(
        _regions("system", _REGION + "register"), "Register a region", "Object", answer=""
    ),
    Call.SYSTEM_SHARED_MEMORY_UNREGISTER: Described(
        _regions("system", "unregister", _REGION + "unregister"), "Forget regions", answer=""
    ),
    Call.CUDA_SHARED_MEMORY_STATUS: Described(
        _regions("cuda", "status", _REGION + "status"), "Regions of a GPU's memory", answer="List"
    ),
    Call.CUDA_SHARED_MEMORY_REGISTER: Described(
        _regions("cuda", _REGION + "register"), "Register a region of a GPU", "Object", answer=""
    ),
    Call.CUDA_SHARED_MEMORY_UNREGISTER: Described(
        _regions("cuda", "unregister", _REGION + "unregister"), "Forget regions of a GPU", answer=""
    ),
    Call.TRACE: Described(
        ("/v2/trace/setting", f"{_MODEL}/trace/setting"), "What is traced, and changes of it", "Object"
    ),
    Call.LOGGING: Described(("/v2/logging",), "What is logged, and changes of it", "Object"),
    Call.PROFILE: Described(
        ("/v2/debug/profile",),
        "Where the server spends its time, if it was started with --profile=true",
        "Object",
    ),
    Call.LANDING: Described(("/",), "A page for people", media="text/html"),
    Call.OPENAPI: Described(("/openapi.json",), "This document"),
    Call.CONSOLE: Described(("/console",), "The console, a page for people", media="text/html"),
    Call.CONSOLE_SNAPSHOT: Described(("/v2/console/snapshot",), "What the server is doing"),
    Call.CONSOLE_EVENTS: Described(
        ("/v2/console/events",), "What the server is doing, each second", media=_EVENTS
    ),
    Call.CONSOLE_LOGS: Described(("/v2/console/logs",), "The log, as it goes on", media=_EVENTS),
}
"""What is said of each call."""

_TEXT: Final = {"type": "string"}
_SHAPE: Final = {"type": "array", "items": {"type": "integer"}}
_TENSOR: Final = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {"name": _TEXT, "datatype": _TEXT, "shape": _SHAPE},
}
_DATA: Final = {"data": {"type": "array", "items": {}}, "parameters": {"type": "object"}}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_VALUES: Final = {**_TENSOR, "properties": {**_TENSOR["properties"], **_DATA}}  # type: ignore[dict-item]  # a dict
_REQUESTED: Final = _object(["name"], name=_TEXT, parameters={"type": "object"})
_SCHEMAS: Final[dict[str, Any]] = {
    "Object": {"type": "object"},
    "List": _list({"type": "object"}),
    "Error": _object(["error"], error=_TEXT),
    "InferRequest": _object(
        ["inputs"], id=_TEXT, parameters={"type": "object"}, inputs=_list(_VALUES), outputs=_list(_REQUESTED)
    ),
    "InferResponse": _object(
        ["model_name", "outputs"],
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        parameters={"type": "object"},
        outputs=_list(_VALUES),
    ),
    "Metadata": _object(
        ["name", "inputs", "outputs"],
        name=_TEXT,
        versions=_list(_TEXT),
        platform=_TEXT,
        inputs=_list(_TENSOR),
        outputs=_list(_TENSOR),
    ),
    "Models": _object(
        ["models"],
        models=_list(_object(["name", "versions"], name=_TEXT, versions=_list(_TEXT), platform=_TEXT)),
    ),
    "Index": _list(_object(["name"], name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT)),
}


def openapi(calls: Iterable[Call], further: Paths | None = None) -> dict[str, Any]:
    """The document, of these calls, and of `further` paths that others answer."""
    paths: dict[str, Any] = {}
    for call in Call:
        if call in calls:
            methods = [method for method in call.methods if method != "HEAD"]  # a GET without the body
            paths |= paths_of(call.label, call.category, methods, DESCRIBED[call])
    paths |= further or {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Halimede", "version": halimede.__version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


def paths_of(label: str, category: str, methods: Collection[str], described: Described) -> dict[str, Any]:
    """What the document says of a call.

    Args:
        label: the call's name; no other call has it.
        category: what it is listed under.
        methods: the HTTP methods that it takes.
        described: what is said of it.
    """
    several = len(methods) > 1
    return {
        path: {
            method.lower(): _operation(
                label + (f"_{method.lower()}" if several else "") + _which(described, path),
                category,
                described,
                path,
                method,
            )
            for method in methods
        }
        for path in described.paths
    }


def _operation(
    identifier: str, category: str, described: Described, path: str, method: str
) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "It is done."}
    if described.answer:
        schema = _schema(described.answer) if described.media == _JSON else _TEXT
        answer = {"description": "The answer.", "content": {described.media: {"schema": schema}}}
    operation: dict[str, Any] = {
        "operationId": identifier,
        "summary": described.summary,
        "tags": [category],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": _TEXT}
            for name in re.findall(r"{(\w+)}", path)
        ],
        "responses": {
            "200": answer,
            "default": {
                "description": "What was wrong.",
                "content": {_JSON: {"schema": _schema("Error")}},
            },
        },
    }
    if method == "POST" and described.body:
        required = described.body != "Object"
        content = {_JSON: {"schema": _schema(described.body)}}
        operation["requestBody"] = {"required": required, "content": content}
    return operation


def _which(described: Described, path: str) -> str:
    """What tells the paths of a call apart in its identifiers: "" for the first."""
    place = described.paths.index(path)
    return f"_{place + 1}" if place else ""


def _schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
