"""What a request to load a model says."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Buffer
from halimede.frontends.http.codec.small_json import parse_small

TARGET_MODEL: Final = "x-amzn-sagemaker-target-model"
"""The header with the name that clients of the platform use."""

_ALIAS_LENGTH: Final = 1024
_EXPECTED: Final = 'expected {"model_name": "<name>", "url": "<directory or archive>"}'


class LoadRequest(NamedTuple):
    """A model to load.

    Attributes:
        key: what the platform calls it.
        url: where it lies.
        alias: what clients of the platform call it, "" if that is not said.
    """

    key: str
    url: str
    alias: str


def read_load_request(body: Buffer, headers: Mapping[str, str], max_bytes: int) -> LoadRequest:
    """The model that a request is for.

    Args:
        body: the whole body; members that are not known are left alone.
        headers: lower-case name → value.
        max_bytes: the most bytes of any JSON.

    Raises:
        InvalidArgumentError: it is not what the contract describes.
    """
    document = parse_small(body, max_bytes) if body else {}
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"the request to load a model is not a JSON object; {_EXPECTED}")
    return LoadRequest(_text(document, "model_name"), _text(document, "url"), _alias(headers))


def _text(document: dict[str, Any], member: str) -> str:
    if member not in document:
        raise InvalidArgumentError(f"the request to load a model lacks '{member}'; {_EXPECTED}")
    value = document[member]
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidArgumentError(f"'{member}' must be a string, not empty and without null characters")
    return value


def _alias(headers: Mapping[str, str]) -> str:
    """The target model; S3 allows any UTF-8 in the names of objects."""
    value = headers.get(TARGET_MODEL, "")
    try:
        alias = value.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError("X-Amzn-SageMaker-Target-Model is not UTF-8") from None
    if len(alias) > _ALIAS_LENGTH or not alias.isprintable():
        msg = f"X-Amzn-SageMaker-Target-Model must be at most {_ALIAS_LENGTH} printable characters"
        raise InvalidArgumentError(msg)
    return alias
