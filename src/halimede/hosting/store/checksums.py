"""The checksums that S3 keeps beside an object (``x-amz-checksum-*``)."""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from awscrt import checksums as crt

from halimede.hosting.errors import ApiError

PREFIX = "x-amz-checksum-"
COMPOSITE, FULL_OBJECT = "COMPOSITE", "FULL_OBJECT"

_CRCS: Mapping[str, Callable[[bytes | memoryview, int], int]] = {
    "CRC32": zlib.crc32,  # twice as fast as that of awscrt
    "CRC32C": crt.crc32c,
    "CRC64NVME": crt.crc64nvme,
}
"""Each takes bytes and the checksum of those before them."""

_COMBINE: Mapping[str, Callable[[int, int, int], int]] = {
    "CRC32": crt.combine_crc32,
    "CRC32C": crt.combine_crc32c,
    "CRC64NVME": crt.combine_crc64nvme,
}
"""Each takes the checksums of two pieces and the second one's bytes: the checksum of both together."""

_SIZES = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32}


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum that is kept.

    Attributes:
        algorithm: such as ``CRC32``.
        value: as headers have it: base64, and for a composite one a hyphen and the number of parts.
        kind: ``FULL_OBJECT``, or ``COMPOSITE`` for the checksum of the parts' checksums.
    """

    algorithm: str
    value: str
    kind: str = FULL_OBJECT

    @property
    def header(self) -> str:
        """The name of the header that has it."""
        return PREFIX + self.algorithm.lower()


class Hasher(Protocol):
    """Sums up bytes as they come."""

    def update(self, data: bytes | memoryview, /) -> None:
        """More bytes."""

    def digest(self) -> bytes:
        """The checksum of all bytes so far."""


class _CrcHasher:
    def __init__(self, algorithm: str) -> None:
        self._crc = _CRCS[algorithm]
        self._size = _SIZES[algorithm]
        self._value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._value = self._crc(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


def hasher(algorithm: str) -> Hasher:
    """What sums up bytes by an algorithm.

    Raises:
        ApiError: S3 has no such algorithm (``InvalidRequest``).
    """
    check_algorithm(algorithm)
    if algorithm in _CRCS:
        return _CrcHasher(algorithm)
    return hashlib.new(algorithm, usedforsecurity=False)


def check_algorithm(algorithm: str) -> None:
    """Refuse what S3 has no name for.

    Raises:
        ApiError: S3 has no such algorithm (``InvalidRequest``).
    """
    if algorithm not in _SIZES:
        msg = f"there is no checksum algorithm '{algorithm}'; there are {', '.join(_SIZES)}"
        raise ApiError("InvalidRequest", msg)


def declared(headers: Mapping[str, str]) -> Checksum | None:
    """The checksum that headers declare, if they do.

    Raises:
        ApiError: they declare several, or one that is none (``InvalidRequest``).
    """
    found = [
        Checksum(algorithm, headers[PREFIX + algorithm.lower()])
        for algorithm in _SIZES
        if PREFIX + algorithm.lower() in headers
    ]
    if len(found) > 1:
        raise ApiError("InvalidRequest", "Expecting a single x-amz-checksum- header")
    for checksum in found:
        check_value(checksum)
    return found[0] if found else None


def check_value(checksum: Checksum) -> None:
    """Refuse a text that cannot be a checksum of its algorithm.

    Raises:
        ApiError: it cannot (``InvalidRequest``).
    """
    try:
        size = len(base64.b64decode(checksum.value.partition("-")[0], validate=True))
    except binascii.Error:
        size = -1
    if size != _SIZES[checksum.algorithm]:
        msg = (
            f"Value for {checksum.header} header is invalid: expected {_SIZES[checksum.algorithm]} bytes in base64, "
            f"got '{checksum.value}'"
        )
        raise ApiError("InvalidRequest", msg)


def usual_kind(algorithm: str) -> str:
    """What S3 makes of a multipart upload's checksums unless it is told."""
    return FULL_OBJECT if algorithm == "CRC64NVME" else COMPOSITE


def check_kind(algorithm: str, kind: str) -> None:
    """Refuse a kind that the algorithm has not.

    Raises:
        ApiError: ``InvalidRequest``.
    """
    if kind not in {COMPOSITE, FULL_OBJECT}:
        raise ApiError("InvalidRequest", f"'{kind}' is no checksum type; there are COMPOSITE and FULL_OBJECT")
    whole_only = algorithm == "CRC64NVME"
    if (kind == COMPOSITE) if whole_only else (kind == FULL_OBJECT and algorithm not in _CRCS):
        msg = f"The {kind} checksum type cannot be used with the {algorithm} checksum algorithm"
        raise ApiError("InvalidRequest", msg)


def of_parts(algorithm: str, kind: str, parts: Iterable[tuple[str, int]]) -> Checksum:
    """The checksum of an object from those of its parts.

    Args:
        algorithm: of them all.
        kind: ``COMPOSITE`` or ``FULL_OBJECT``.
        parts: each one's checksum in base64, and its bytes, in order.
    """
    decoded = [(base64.b64decode(value), size) for value, size in parts]
    if kind == COMPOSITE:
        total = hasher(algorithm)
        total.update(b"".join(value for value, _ in decoded))
        return Checksum(algorithm, f"{encode(total.digest())}-{len(decoded)}", kind)
    whole = 0
    for value, size in decoded:
        whole = _COMBINE[algorithm](whole, int.from_bytes(value, "big"), size)
    return Checksum(algorithm, encode(whole.to_bytes(_SIZES[algorithm], "big")), kind)


def encode(digest: bytes) -> str:
    """A digest as headers have it."""
    return base64.b64encode(digest).decode()
