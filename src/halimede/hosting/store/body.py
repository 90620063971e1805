"""The body of a request: taken as it comes, and held against all that its headers say of it."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping

from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import DisconnectedError, Request
from halimede.hosting.store import checksums
from halimede.hosting.store.aws_chunks import AwsChunks, ChunkSigner, is_chunked
from halimede.hosting.store.checksums import Checksum, Hasher
from halimede.hosting.store.failures import invalid_argument, not_implemented
from halimede.hosting.store.object_store import ObjectStore

_SHA256 = re.compile("[0-9a-fA-F]{64}")
_MD5_BYTES = 16
_SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
_KINDS = (
    "UNSIGNED-PAYLOAD",
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    _SIGNED_CHUNKS,
    f"{_SIGNED_CHUNKS}-TRAILER",
)

Take = Callable[[bytes | memoryview], None]


class Body:
    """A body. `feed` and `finish` block, and are called from one thread at a time.

    Attributes:
        expected: how many bytes it is said to have, -1 if nobody says.
        checksum: the one that it was sent with, or that was asked for; known when it is complete.
    """

    def __init__(
        self,
        request: Request,
        access: Key | None,
        take: Take,
        algorithm: str = "",
        *,
        header_checksum: bool = True,
    ) -> None:
        """A body that is about to come.

        Args:
            request: whose it is.
            access: the key that has signed it; None if nobody asks.
            take: called with its bytes.
            algorithm: the checksum that is wanted even if the client sends none, "" for none.
            header_checksum: a header with a checksum is about the body, and not about something else.

        Raises:
            ApiError: its headers contradict each other, or make no sense.
        """
        headers = request.head.headers
        self.checksum: Checksum | None = checksums.declared(headers) if header_checksum else None
        self._take = take
        self._size = 0
        self._md5 = _declared_md5(headers)
        self._sha256 = _declared_sha256(headers)
        self._hashers: dict[str, Hasher] = {}
        if self._md5 is not None:
            self._hashers["MD5"] = hashlib.md5(usedforsecurity=False)
        if self._sha256:
            self._hashers["hash"] = hashlib.sha256()
        self._trailer = headers.get("x-amz-trailer", "").strip().lower()
        self._algorithm = self._chosen_algorithm(algorithm)
        if self._algorithm:
            self._hashers["checksum"] = checksums.hasher(self._algorithm)
        self.expected = request.head.length
        self._chunks: AwsChunks | None = None
        if is_chunked(headers):
            self.expected = _decoded_length(headers)
            signed = headers.get("x-amz-content-sha256", "").startswith(_SIGNED_CHUNKS)
            signer = ChunkSigner(request.head, access) if signed and access is not None else None
            self._chunks = AwsChunks(self._sum, signer)

    def _chosen_algorithm(self, wanted: str) -> str:
        if self._trailer:
            if not self._trailer.startswith(checksums.PREFIX) or self.checksum is not None:
                raise ApiError(
                    "InvalidRequest", "The value specified in the x-amz-trailer header is not supported"
                )
            algorithm = self._trailer.removeprefix(checksums.PREFIX).upper()
            checksums.check_algorithm(algorithm)
        else:
            algorithm = "" if self.checksum is None else self.checksum.algorithm
        if wanted and algorithm and wanted != algorithm:
            msg = (
                f"Checksum Type mismatch occurred, expected checksum Type: {wanted.lower()}, actual checksum Type: "
                f"{algorithm.lower()}"
            )
            raise ApiError("InvalidRequest", msg)
        return algorithm or wanted

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            ApiError: the framing is malformed, a chunk's signature is wrong, or more comes than was said.
        """
        if self._chunks is not None:
            self._chunks.feed(data)
        else:
            self._sum(data)

    def _sum(self, piece: bytes | memoryview) -> None:
        self._size += len(piece)
        if 0 <= self.expected < self._size:
            raise ApiError(
                "IncompleteBody", f"The body has more than the {self.expected} bytes that its headers say"
            )
        for each in self._hashers.values():
            each.update(piece)
        self._take(piece)

    def finish(self) -> None:
        """The body is complete.

        Raises:
            ApiError: it is not what its headers say.
        """
        if self._chunks is not None:
            self._chunks.finish()
        if 0 <= self.expected != self._size:
            msg = f"The body has {self._size} bytes, and its headers say {self.expected}"
            raise ApiError("IncompleteBody", msg)
        digests = {name: each.digest() for name, each in self._hashers.items()}
        if self._md5 is not None and digests["MD5"] != self._md5:
            msg = "The Content-MD5 you specified did not match what we received"
            raise ApiError("BadDigest", msg)
        if self._sha256 and not hmac.compare_digest(digests["hash"].hex(), self._sha256):
            msg = "The provided 'x-amz-content-sha256' header does not match what was computed"
            raise ApiError("XAmzContentSHA256Mismatch", msg)
        if self._algorithm:
            self._check_sum(checksums.encode(digests["checksum"]))

    def _check_sum(self, value: str) -> None:
        if self._trailer:
            text = "" if self._chunks is None else self._chunks.trailers.get(self._trailer, "")
            if not text:
                msg = f"The trailer {self._trailer} was announced and has not come"
                raise ApiError("MalformedTrailerError", msg)
            self.checksum = Checksum(self._algorithm, text)
            checksums.check_value(self.checksum)
        if self.checksum is not None and self.checksum.value != value:
            msg = f"The {self._algorithm} you specified did not match the calculated checksum"
            raise ApiError("BadDigest", msg)
        self.checksum = Checksum(self._algorithm, value)


async def receive(request: Request, body: Body, store: ObjectStore, *, collected: bool = False) -> None:
    """Take a whole body, at the pace at which the disk takes it.

    Args:
        request: whose it is.
        body: takes it.
        store: has threads to sum it up.
        collected: it is kept in memory.

    Raises:
        ApiError: it is not what its headers say, the disk does not take it, or there is no memory for it.
        DisconnectedError: the client has gone before it was complete.
    """
    changed = asyncio.Event()
    held = request.hold(changed.set) if collected else None
    request.receive(changed.set)
    previous, request.on_disconnect = request.on_disconnect, changed.set
    try:
        while True:
            changed.clear()
            if held is not None and not held.may_take():
                if request.answered:
                    raise DisconnectedError
                await changed.wait()
                continue
            complete = request.complete
            data = request.take()
            if held is not None:
                held.add(len(data))
            if data:
                await store.run(body.feed, data)
            if complete:
                await store.run(body.finish)
                return
            if request.answered:  # the client has gone, or its framing made no sense
                raise DisconnectedError
            if not request.waiting and not request.complete:
                await changed.wait()
    finally:
        if held is not None:
            held.close()
        request.on_disconnect = previous


async def read(
    request: Request, access: Key | None, store: ObjectStore, limit: int, *, header_checksum: bool = True
) -> bytes:
    """A whole body that is small.

    Args:
        request: whose it is.
        access: the key that has signed it; None if nobody asks.
        store: has threads to sum it up.
        limit: so many bytes at most.
        header_checksum: a header with a checksum is about the body, and not about something else.

    Raises:
        ApiError: it is larger than `limit` bytes, or not what its headers say.
        DisconnectedError: the client has gone before it was complete.
    """
    data = bytearray()

    def take(piece: bytes | memoryview) -> None:
        if len(data) + len(piece) > limit:
            raise ApiError("EntityTooLarge", f"The body is larger than the allowed {limit} bytes")
        data.extend(piece)

    await receive(
        request, Body(request, access, take, header_checksum=header_checksum), store, collected=True
    )
    return bytes(data)


def _declared_md5(headers: Mapping[str, str]) -> bytes | None:
    text = headers.get("content-md5")
    if text is None:
        return None
    try:
        digest = base64.b64decode(text, validate=True)
    except binascii.Error:
        digest = b""
    if len(digest) != _MD5_BYTES:
        raise ApiError("InvalidDigest", f"The Content-MD5 you specified is not valid: '{text}'")
    return digest


def _declared_sha256(headers: Mapping[str, str]) -> str:
    """The hash that the body must have, "" if the header says something else than a hash."""
    text = headers.get("x-amz-content-sha256", "")
    if not text or text in _KINDS:
        return ""
    if _SHA256.fullmatch(text):
        return text.lower()
    if text.startswith("STREAMING-"):
        raise not_implemented(f"bodies of the kind {text}; there are {', '.join(_KINDS)}")
    msg = f"x-amz-content-sha256 must be {', '.join(_KINDS)}, or a valid sha256 value; got '{text}'"
    raise invalid_argument(msg)


def _decoded_length(headers: Mapping[str, str]) -> int:
    text = headers.get("x-amz-decoded-content-length")
    if text is None:
        raise ApiError(
            "MissingContentLength", "You must provide the x-amz-decoded-content-length header", 411
        )
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise invalid_argument(f"x-amz-decoded-content-length must be a whole number, got '{text}'")
    return int(text)
