"""What a server says of its models and of the time that requests took there, over HTTP or gRPC."""

import asyncio
import http.client
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message

from halimede.bench.address import Address
from halimede.bench.clients.grpc import GrpcLane
from halimede.bench.clients.lane import Recorder
from halimede.bench.errors import BenchError
from halimede.bench.model import Model, Tensor
from halimede.frontends.grpc import kserve_pb2 as pb

_WITHIN_S = 30
_Answer = TypeVar("_Answer", bound=Message)


class Control(Protocol):
    """What asks a server."""

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """A model's metadata, in KServe's JSON."""

    def config(self, name: str, version: str) -> dict[str, Any]:
        """A model's configuration, in Triton's JSON."""

    def statistics(self) -> list[dict[str, Any]]:
        """The statistics of all models, in Triton's JSON."""


@dataclass(frozen=True, slots=True)
class HttpControl:
    """Asks over HTTP.

    Attributes:
        address: of the server.
        headers: that each request has.
    """

    address: Address
    headers: Mapping[str, str]

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """A model's metadata."""
        return self._get(_path(name, version))

    def config(self, name: str, version: str) -> dict[str, Any]:
        """A model's configuration."""
        return self._get(f"{_path(name, version)}/config")

    def statistics(self) -> list[dict[str, Any]]:
        """The statistics of all models."""
        models: list[dict[str, Any]] = self._get("/v2/models/stats").get("model_stats", [])
        return models

    def _get(self, path: str) -> dict[str, Any]:
        status, body = request(self.address, "GET", path, headers=self.headers)
        try:
            document = json.loads(body)
        except ValueError:
            document = {}
        if status != 200 or not isinstance(document, dict):
            reason = document.get("error") if isinstance(document, dict) else None
            raise BenchError(
                f"{self.address.authority} answers GET {path} with {status}: {reason or body[:200]!r}"
            )
        return document


def _path(name: str, version: str) -> str:
    return f"/v2/models/{quote(name, safe='')}" + (f"/versions/{version}" if version else "")


def request(
    address: Address, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of the answer.

    Raises:
        BenchError: the server cannot be reached, or does not speak HTTP.
    """
    context = address.context()
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=_WITHIN_S)
    else:
        connection = http.client.HTTPSConnection(
            address.host, address.port, timeout=_WITHIN_S, context=context
        )
    try:
        connection.request(method, address.path + path, body or None, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        reason = f"{type(error).__name__} {error}".strip()
        raise BenchError(f"No answer over HTTP from {address.authority}: {reason}") from None
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class GrpcControl:
    """Asks over gRPC.

    Attributes:
        address: of the server.
        headers: metadata of each call.
    """

    address: Address
    headers: Mapping[str, str]

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        """A model's metadata."""
        wanted = pb.ModelMetadataRequest(name=name, version=version)
        return _as_json(self._call("ModelMetadata", wanted, pb.ModelMetadataResponse()))

    def config(self, name: str, version: str) -> dict[str, Any]:
        """A model's configuration."""
        wanted = pb.ModelConfigRequest(name=name, version=version)
        document = _as_json(self._call("ModelConfig", wanted, pb.ModelConfigResponse()))
        config: dict[str, Any] = document.get("config", {})
        return config

    def statistics(self) -> list[dict[str, Any]]:
        """The statistics of all models."""
        answer = self._call("ModelStatistics", pb.ModelStatisticsRequest(), pb.ModelStatisticsResponse())
        models: list[dict[str, Any]] = _as_json(answer).get("model_stats", [])
        return models

    def _call(self, method: str, wanted: Message, answer: _Answer) -> _Answer:
        try:
            answer.ParseFromString(
                asyncio.run(unary(self.address, method, wanted.SerializeToString(), self.headers.items()))
            )
        except DecodeError as error:
            raise BenchError(
                f"{self.address.authority}, {method}: the answer cannot be read: {error}"
            ) from None
        return answer


def _as_json(message: Message) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)


async def unary(
    address: Address, method: str, message: bytes, metadata: Iterable[tuple[str, str]] = ()
) -> bytes:
    """The response to a call of the inference service.

    Raises:
        BenchError: the server cannot be reached, or the call fails.
    """
    loop = asyncio.get_running_loop()
    recorder = Recorder()
    lane = GrpcLane(recorder, address, method=method, metadata=tuple(metadata))
    ready: asyncio.Future[None] = loop.create_future()
    done: asyncio.Future[None] = loop.create_future()
    lane.ready = lambda: None if ready.done() else ready.set_result(None)
    lane.closed = lambda _: None if ready.done() else ready.set_exception(ConnectionError("it was closed"))
    lane.idle = lambda _: None if done.done() else done.set_result(None)
    try:
        async with asyncio.timeout(_WITHIN_S):
            await loop.create_connection(lambda: lane, address.host, address.port, ssl=address.context("h2"))
            await ready
            lane.send(b"\0" + len(message).to_bytes(4) + message)
            await done
    except (OSError, TimeoutError) as error:
        reason = str(error) or "it took too long"
        raise BenchError(f"No answer over gRPC from {address.authority}: {reason}") from None
    finally:
        ready.cancel()
        lane.abort()
    if recorder.errors:
        raise BenchError(f"{address.authority} answers {method} with {next(iter(recorder.errors))}")
    return lane.body[5:]


def describe(control: Control, name: str, version: str = "") -> Model:
    """What the server says of a model.

    Raises:
        BenchError: it does not have the model, or cannot be reached.
    """
    metadata = control.metadata(name, version)
    try:
        config = control.config(name, version)
    except BenchError:
        config = {}  # KServe servers other than Triton have none
    optional = {each["name"] for each in config.get("input", []) if each.get("optional")}
    return Model(
        name,
        version,
        tuple(_tensor(each, optional) for each in metadata.get("inputs", [])),
        tuple(_tensor(each, set()) for each in metadata.get("outputs", [])),
        int(config.get("max_batch_size", 0)),
        bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
        "sequence_batching" in config,
    )


def _tensor(document: dict[str, Any], optional: set[str]) -> Tensor:
    shape = tuple(int(size) for size in document.get("shape", []))
    return Tensor(document["name"], document["datatype"], shape, document["name"] in optional)
