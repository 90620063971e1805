"""The JSON of a request to load a model."""

import base64
import binascii
from typing import Any, Final

import orjson

from halimede.codec.json_text import parse_document
from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.core.tensors import Buffer
from halimede.frontends.load_request import LoadRequest

_FILE: Final = "file:"


def parameters_of(document: Any) -> dict[str, Any]:
    """The parameters of a request for a model; none in what is no object.

    Raises:
        InvalidArgumentError: they are no object.
    """
    parameters = document.get("parameters", {}) if isinstance(document, dict) else {}
    if not isinstance(parameters, dict):
        raise InvalidArgumentError("attempt to get members for non-object")
    return parameters


def read_load_request(body: Buffer) -> LoadRequest:
    """The request that a body spells, its files decoded.

    Raises:
        InvalidArgumentError: it is not JSON, the parameters are no object, or a file is not base64.
        InternalError: it has other parameters.
    """
    return LoadRequest.of("", _decoded(parameters_of(parse_document(body) if body else {})))


def _decoded(parameters: dict[str, Any]) -> dict[str, str | bytes]:
    found: dict[str, str | bytes] = {}
    for key, value in parameters.items():
        if key == "config" and isinstance(value, dict):
            found[key] = orjson.dumps(value).decode()
        elif not isinstance(value, str):
            raise InternalError("attempt to access JSON non-string as string")
        elif key == "config":
            found[key] = value
        elif key.startswith(_FILE):
            try:
                found[key] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError) as error:
                raise InvalidArgumentError(f"'{key}' is not base64: {error}") from None
        else:
            raise InternalError("unexpected error on creating Triton parameter")
    return found
