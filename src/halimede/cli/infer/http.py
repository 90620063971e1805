"""A running server over HTTP."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from halimede.cli.infer.remote import (
    RemoteError,
    RemoteModel,
    RemoteOutput,
    RemoteRequest,
    RemoteTensor,
    UnknownModelError,
)
from halimede.core.datatypes import BY_NAME, BYTES
from halimede.core.tensors import Tensor, encode_bytes

_HEADER_LENGTH: Final = "Inference-Header-Content-Length"


class HttpRemote:
    """A running server.

    Args:
        url: such as `http://localhost:8000`.
        headers: sent with each request.
        timeout_s: how long an answer may take.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self._url = url.rstrip("/")
        self._headers = headers
        self._timeout_s = timeout_s

    def model(self, name: str, version: str) -> RemoteModel:
        """What the model takes and gives."""
        path = _path(name, version)
        metadata = self._json(path)
        config = self._json(f"{path}/config")
        optional = {each["name"] for each in config.get("input", ()) if each.get("optional")}
        return RemoteModel(
            name,
            tuple(_tensor(each, each["name"] in optional) for each in metadata.get("inputs", ())),
            tuple(_tensor(each) for each in metadata.get("outputs", ())),
            bool(config.get("model_transaction_policy", {}).get("decoupled")),
        )

    def models(self) -> list[str]:
        """The names of the models that there are."""
        index = self._json("/v2/repository/index", b"{}")
        return list(dict.fromkeys(str(row["name"]) for row in index))

    def infer(self, request: RemoteRequest) -> Sequence[RemoteOutput]:
        """The outputs."""
        body, length = _encode(request)
        headers = {_HEADER_LENGTH: str(length), "Content-Type": "application/octet-stream"}
        answer, received = self._post(f"{_path(request.model, request.version)}/infer", body, headers)
        return _decode(answer, received.get(_HEADER_LENGTH))

    def stream(self, request: RemoteRequest) -> Iterator[Sequence[RemoteOutput]]:
        """The outputs of each response, as they come."""
        body = {name: _plain(array) for name, array in request.inputs.items()}
        path = f"{_path(request.model, request.version)}/generate_stream"
        content = json.dumps({**body, **({"parameters": request.parameters} if request.parameters else {})})
        with self._open(path, content.encode(), {"Content-Type": "application/json"}) as response:
            for line in response:
                if line.startswith(b"data: "):
                    yield _event(json.loads(line[6:]), request.outputs)

    def _json(self, path: str, body: bytes | None = None) -> Any:
        content, _ = self._post(path, body, {})
        try:
            return json.loads(content)
        except ValueError:
            raise RemoteError(f"{self._url}{path} answers, but not as a server of KServe v2 does") from None

    def _post(self, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[bytes, Any]:
        with self._open(path, body, headers) as response:
            return response.read(), response.headers

    def _open(self, path: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the command has checked the scheme
            f"{self._url}{path}", body, {**headers, **self._headers}
        )
        try:
            return urllib.request.urlopen(request, timeout=self._timeout_s)  # noqa: S310
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RemoteError(
                f"no server answers at {self._url}: {reason}. Is `halimede serve` running there? --url says where it is"
            ) from None


def _refusal(error: urllib.error.HTTPError) -> RemoteError:
    content = error.read()
    try:
        text = str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        text = content.decode(errors="replace").strip() or f"{error.code} {error.reason}"
    return UnknownModelError(text) if "unknown model" in text else RemoteError(text)


def _path(model: str, version: str) -> str:
    return f"/v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")


def _tensor(document: Mapping[str, Any], optional: bool = False) -> RemoteTensor:
    shape = tuple(int(size) for size in document["shape"])
    return RemoteTensor(document["name"], BY_NAME[document["datatype"]], shape, optional)


def _encode(request: RemoteRequest) -> tuple[bytes, int]:
    """The body, and the length of its JSON part."""
    parts, inputs = [], []
    for name, array in request.inputs.items():
        datatype = request.datatypes[name]
        data = encode_bytes(array.ravel().tolist()) if datatype is BYTES else array.tobytes()
        inputs.append(
            {
                "name": name,
                "datatype": datatype.name,
                "shape": list(array.shape),
                "parameters": {"binary_data_size": len(data)},
            }
        )
        parts.append(data)
    document: dict[str, Any] = {"inputs": inputs, "parameters": dict(request.parameters)}
    wanted = {"classification": request.classes} if request.classes else {"binary_data": True}
    if request.outputs:
        document["outputs"] = [{"name": name, "parameters": wanted} for name in request.outputs]
    elif not request.classes:
        document["parameters"]["binary_data_output"] = True
    head = json.dumps(document).encode()
    return b"".join((head, *parts)), len(head)


def _decode(body: bytes, length: str | None) -> list[RemoteOutput]:
    head, data = (body, b"") if length is None else (body[: int(length)], body[int(length) :])
    outputs = []
    for each in json.loads(head)["outputs"]:
        datatype, shape = BY_NAME[each["datatype"]], tuple(each["shape"])
        size = each.get("parameters", {}).get("binary_data_size")
        if size is None:
            values = each["data"]
            if datatype is BYTES:
                values = [str(value).encode() for value in values]
            array = np.empty(prod(shape), datatype.numpy)
            array[:] = values
            array = array.reshape(shape)
        else:
            array, data = Tensor(datatype, shape, data[:size]).array, data[size:]
        outputs.append(RemoteOutput(each["name"], datatype.name, array))
    return outputs


def _plain(array: Any) -> Any:
    if array.dtype.kind == "O":
        array = np.array([each.decode(errors="replace") for each in array.ravel()], np.object_).reshape(
            array.shape
        )
    return array.item() if array.size == 1 else array.tolist()


def _event(document: Mapping[str, Any], wanted: Sequence[str]) -> list[RemoteOutput]:
    if "error" in document:
        raise RemoteError(str(document["error"]))
    skipped = ("model_name", "model_version", "id", "parameters")
    return [
        RemoteOutput(name, "", np.asarray(value, np.object_ if isinstance(value, str) else None))
        for name, value in document.items()
        if name not in skipped and (not wanted or name in wanted)
    ]
