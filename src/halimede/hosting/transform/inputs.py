"""Which objects a job transforms, and where the outputs go."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import orjson

from halimede.hosting.errors import ApiError
from halimede.hosting.s3_urls import bucket_and_key
from halimede.hosting.store.places import ListedObject
from halimede.hosting.transform.failures import TransformError, client_error
from halimede.hosting.transform.spec import TransformSpec

_MANIFEST_BYTES = 64 << 20
_SUFFIX = ".out"


class InputObject(NamedTuple):
    """An object to transform.

    Attributes:
        url: ``s3://…``.
        output: ``s3://…`` of what comes of it.
        size: its bytes; 0 if that is not known.
    """

    url: str
    output: str
    size: int


class Listing(Protocol):
    """Reads and lists objects of any bucket."""

    async def read(self, url: str, limit: int) -> bytes:
        """The bytes of an object that has no more than `limit`."""

    async def list(self, url: str) -> Sequence[ListedObject]:
        """The objects whose URLs begin with this one."""


async def inputs_of(spec: TransformSpec, objects: Listing) -> list[InputObject]:
    """The objects that a job transforms, in order; none of them twice.

    Raises:
        TransformError: there are none, or the manifest cannot be read.
    """
    return await _of_manifest(spec, objects) if spec.is_manifest else await _of_prefix(spec, objects)


async def _of_prefix(spec: TransformSpec, objects: Listing) -> list[InputObject]:
    bucket, prefix = bucket_and_key(spec.source)
    base = len(f"s3://{bucket}/")
    why = ""
    try:
        found: Sequence[ListedObject] = await objects.list(spec.source)
    except ApiError as error:
        found, why = (), f" Error message: {error.message}"
    inputs = [
        InputObject(each.url, _output(spec, _relative(each.url[base:], prefix)), each.size)
        for each in found
        if not each.url.endswith("/")
    ]
    if not inputs:
        raise client_error(
            f'No S3 objects found under S3 URL "{spec.source}" given in input data source. Please ensure that the '
            f"bucket exists, and that objects exist under that S3 prefix.{why}"
        )
    return inputs


def _relative(key: str, prefix: str) -> str:
    """What of a key tells it apart from others below a prefix: directories that the prefix names are left out."""
    if prefix and key.startswith(f"{prefix}/"):
        return key.removeprefix(f"{prefix}/")
    return key[prefix.rfind("/") + 1 :]


def _output(spec: TransformSpec, relative: str) -> str:
    return f"{spec.destination}/{relative.lstrip('/')}{_SUFFIX}"


async def _of_manifest(spec: TransformSpec, objects: Listing) -> list[InputObject]:
    try:
        content = await objects.read(spec.source, _MANIFEST_BYTES)
    except ApiError as error:
        raise client_error(f"the manifest cannot be read: {error.message}") from None
    try:
        entries = orjson.loads(content)
    except ValueError as error:
        raise _bad(spec, f"it is no JSON: {error}") from None
    prefix = entries[0].get("prefix") if _begins_with_prefix(entries) else None
    if not isinstance(prefix, str) or not bucket_and_key(prefix)[0]:
        raise _bad(spec, 'it has to be a list that begins with {"prefix": "s3://BUCKET/PREFIX"}')
    names = entries[1:]
    if not all(isinstance(name, str) and name for name in names):
        raise _bad(spec, "all entries after the first one have to be keys relative to the prefix")
    if not names:
        raise _bad(spec, "it names no objects")
    return [InputObject(prefix + name, _output(spec, name), 0) for name in dict.fromkeys(names)]


def _begins_with_prefix(entries: Any) -> bool:
    return isinstance(entries, list) and bool(entries) and isinstance(entries[0], dict)


def _bad(spec: TransformSpec, why: str) -> TransformError:
    return client_error(f"the manifest {spec.source} cannot be used: {why}")
