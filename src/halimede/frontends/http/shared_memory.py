"""The calls that register, list and unregister clients' shared memory over HTTP."""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from halimede.codec.value_ranges import shortened
from halimede.core.errors import InvalidArgumentError
from halimede.frontends.http.codec.small_json import parse_small
from halimede.frontends.http.routes import Call, Route
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.shared_memory.registry import Regions

_UINT64_MAX: Final = (1 << 64) - 1


class SharedMemoryCalls:
    """What answers them.

    Attributes:
        calls: the handler of each.
    """

    def __init__(self, regions: Regions, max_body: int) -> None:
        """Calls about these regions, with bodies of up to `max_body` bytes."""
        self._regions = regions
        self._max_body = max_body
        self.calls: Mapping[Call, Callable[[Exchange, Route], None]] = {
            Call.SYSTEM_SHARED_MEMORY_STATUS: self._system_status,
            Call.SYSTEM_SHARED_MEMORY_REGISTER: self._register_system,
            Call.SYSTEM_SHARED_MEMORY_UNREGISTER: self._unregister_system,
            Call.CUDA_SHARED_MEMORY_STATUS: self._cuda_status,
            Call.CUDA_SHARED_MEMORY_REGISTER: self._register_cuda,
            Call.CUDA_SHARED_MEMORY_UNREGISTER: self._unregister_cuda,
        }

    def _system_status(self, exchange: Exchange, route: Route) -> None:
        rows = [
            {"name": each.name, "key": each.key, "offset": each.offset, "byte_size": each.byte_size}
            for each in self._regions.system.status(route.region)
        ]
        exchange.respond(200, (orjson.dumps(rows),))

    def _register_system(self, exchange: Exchange, route: Route) -> None:
        self._regions.check_allowed()
        _check_name(route.region, "system")
        document = self._document(exchange)
        for field in ("key", "byte_size"):
            _check_given(document, field)
        key = _string(document["key"])
        offset = _unsigned("offset", document.get("offset", 0))
        size = _unsigned("byte_size", document["byte_size"])
        self._regions.system.register(route.region, key, offset, size)
        exchange.respond(200)

    def _unregister_system(self, exchange: Exchange, route: Route) -> None:
        self._regions.check_allowed()
        self._regions.system.unregister(route.region)
        exchange.respond(200)

    def _cuda_status(self, exchange: Exchange, route: Route) -> None:
        rows = [
            {"name": each.name, "device_id": each.device_id, "byte_size": each.byte_size}
            for each in self._regions.cuda.status(route.region)
        ]
        exchange.respond(200, (orjson.dumps(rows),))

    def _register_cuda(self, exchange: Exchange, route: Route) -> None:
        self._regions.check_allowed()
        _check_name(route.region, "cuda")
        document = self._document(exchange)
        _check_given(document, "raw_handle")
        handle = _handle(document["raw_handle"])
        device = _unsigned("device_id", _member(document, "device_id"))
        size = _unsigned("byte_size", _member(document, "byte_size"))
        self._regions.cuda.register(route.region, handle, device, size)
        exchange.respond(200)

    def _unregister_cuda(self, exchange: Exchange, route: Route) -> None:
        self._regions.check_allowed()
        self._regions.cuda.unregister(route.region)
        exchange.respond(200)

    def _document(self, exchange: Exchange) -> dict[str, Any]:
        """The members of the body; what is no object has none."""
        document = parse_small(exchange.body, self._max_body)
        return document if isinstance(document, dict) else {}


def _check_name(region: str, kind: str) -> None:
    if not region:
        raise InvalidArgumentError(f"'region name' is necessary to register {kind} shared memory region")


def _check_given(document: dict[str, Any], field: str) -> None:
    if field not in document:
        raise InvalidArgumentError(f"Shared memory register request has no '{field}' field")


def _member(document: dict[str, Any], field: str) -> object:
    if field not in document:
        raise InvalidArgumentError(f"attempt to access non-existing object member '{field}'")
    return document[field]


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError("attempt to access JSON non-string as string")
    return value


def _unsigned(field: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= _UINT64_MAX:
        msg = (
            f"attempt to access JSON non-unsigned-integer as unsigned-integer: '{field}' is {shortened(value)}, "
            f"expected an integer from 0 to {_UINT64_MAX}"
        )
        raise InvalidArgumentError(msg)
    return value


def _handle(value: object) -> bytes:
    """The bytes of a handle, which come as base64 in the member `b64`."""
    text = _string(_member(value if isinstance(value, dict) else {}, "b64"))
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        msg = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
        raise InvalidArgumentError(msg) from None
