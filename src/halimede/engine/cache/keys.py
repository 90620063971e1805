"""What tells two requests apart for the response cache, as a digest.

Two requests of one version have the same key if they have the same inputs (names, datatypes, shapes and bytes, in
whatever order), ask for the same outputs, and have the same custom parameters and the same correlation id. The
request's id, its priority and its timeout do not matter. BLAKE3 and BLAKE2b are cryptographic hashes: nobody can make
a request whose key is that of another.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from halimede.core.requests import InferRequest
from halimede.core.tensors import Buffer


class _Hash(Protocol):
    """A hash in the making."""

    def update(self, data: Buffer, /) -> object:
        """Take in more bytes."""

    def digest(self) -> bytes:
        """The digest of all bytes taken in."""


def _blake2b(data: bytes) -> _Hash:
    return blake2b(data, digest_size=32)


_hash: Callable[[bytes], _Hash]

try:
    from blake3 import blake3  # hashes large tensors eight times as fast

    _hash, ALGORITHM = blake3, "blake3"
except ImportError:
    _hash, ALGORITHM = _blake2b, "blake2b"


def digest(data: bytes) -> bytes:
    """The digest of some bytes: 32 bytes."""
    return _hash(data).digest()


def request_key(version: bytes, request: InferRequest) -> bytes:
    """The key of a request: 32 bytes.

    Args:
        version: what tells the model's version from all others; always of the same length.
        request: a valid request to it.

    Raises:
        HalimedeError: an input is in the memory of a device, and cannot be copied from there.
    """
    inputs = request.inputs
    parameters = request.parameters
    described: list[object] = [request.outputs, parameters and sorted(parameters.items())]
    buffers = []
    for name in sorted(inputs) if len(inputs) > 1 else inputs:
        tensor = inputs[name]
        data = tensor.data
        buffers.append(data)
        described.append((name, tensor.datatype.name, tensor.shape, len(data)))
    if request.sequence_id or request.sequence_start or request.sequence_end:
        described.append([request.sequence_id, request.sequence_start, request.sequence_end])
    # The text ends where its outermost bracket closes, so that what follows it cannot be taken for a part of it.
    state = _hash(version + repr(described).encode())
    for data in buffers:
        state.update(data)
    return state.digest()
