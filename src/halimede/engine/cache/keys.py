"""What tells two requests apart for the response cache, as a digest.

Two requests of one version have the same key if they have the same inputs (names, datatypes, shapes and bytes, in
whatever order), ask for the same outputs, and have the same custom parameters. The request's id, its priority and its
timeout do not matter. BLAKE3 and BLAKE2b are cryptographic hashes: nobody can make a request whose key is that of
another.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, Protocol

from halimede.core.requests import InferRequest
from halimede.core.tensors import Buffer

_SMALL: Final = 2048
"""Up to so many bytes BLAKE2b is faster."""

_MOST_PREFIXES: Final = 1000


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


class Keys:
    """Makes the keys of requests to one version."""

    def __init__(self, identity: bytes) -> None:
        """Keys for the version that `identity`, 32 bytes, tells from all others."""
        self._identity = identity
        self._prefixes: dict[tuple[object, ...], bytes] = {}  # clients repeat themselves in all but the bytes

    def key(self, request: InferRequest) -> bytes:
        """The key of a valid request: 32 bytes.

        Raises:
            HalimedeError: an input is in the memory of a device, and cannot be copied from there.
        """
        inputs = request.inputs
        form: list[object] = [request.outputs]
        buffers = []
        size = 0
        for name in sorted(inputs) if len(inputs) > 1 else inputs:
            tensor = inputs[name]
            data = tensor.data
            buffers.append(data)
            size += len(data)
            form += (name, tensor.datatype.name, tensor.shape, len(data))
        if request.parameters:
            prefix = self._prefix([form, sorted(request.parameters.items())])
        else:
            known = tuple(form)
            prefix = self._prefixes.get(known) or self._learn(known)
        if size <= _SMALL:
            return blake2b(b"".join((prefix, *buffers)), digest_size=32).digest()
        state = _hash(prefix)
        for data in buffers:
            state.update(data)
        return state.digest()

    def _prefix(self, form: object) -> bytes:
        # The text ends where its outermost bracket closes, so that what follows cannot be taken for a part of it.
        return self._identity + repr(form).encode()

    def _learn(self, form: tuple[object, ...]) -> bytes:
        if len(self._prefixes) >= _MOST_PREFIXES:
            self._prefixes.clear()
        prefix = self._prefixes[form] = self._prefix(form)
        return prefix
