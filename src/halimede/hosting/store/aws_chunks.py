"""Bodies in the coding ``aws-chunked``: chunks that may be signed, and trailers with a checksum.

    SIZE[;chunk-signature=HEX] CRLF BYTES CRLF … 0[;chunk-signature=HEX] CRLF [NAME:VALUE CRLF]… CRLF

It is inside the coding of HTTP: Content-Encoding says it, and ``x-amz-content-sha256`` what is signed.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from enum import Enum

from halimede.hosting.access.keys import Key
from halimede.hosting.access.signature import read_signature
from halimede.hosting.errors import ApiError
from halimede.http1.head import Head

_SHORTEST = 8192
"""Bytes of a chunk that others follow, as S3 has it."""

_LINE_BYTES = 1024
_TRAILERS = 16
_EMPTY = hashlib.sha256(b"").hexdigest()
_TRAILER_SIGNATURE = "x-amz-trailer-signature"


class _Expected(Enum):
    SIZE = "a line with a chunk's size"
    DATA = "a chunk's bytes"
    DATA_END = "the line end after a chunk"
    TRAILER = "a trailer, or the empty line that ends the body"
    NOTHING = "nothing more"


class ChunkSigner:
    """Verifies the signatures of chunks: each covers the chunk and the signature before."""

    def __init__(self, head: Head, key: Key) -> None:
        """A signer for a request whose own signature has been verified."""
        signature = read_signature(head)
        assert signature is not None, "the gate lets no unsigned request in"
        self._stamp = head.headers["x-amz-date"]
        self._scope = f"{signature.date}/{signature.region}/{signature.service}/aws4_request"
        self._previous = signature.value
        secret = b"AWS4" + key.secret.encode()
        for part in (signature.date, signature.region, signature.service, "aws4_request"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        self._secret = secret

    def chunk(self, digest: str, signature: str) -> None:
        """Verify a chunk.

        Raises:
            ApiError: it was not signed so (``SignatureDoesNotMatch``).
        """
        self._verify("AWS4-HMAC-SHA256-PAYLOAD", f"{_EMPTY}\n{digest}", signature, "a chunk of the body")

    def trailers(self, lines: bytes, signature: str) -> None:
        """Verify the trailers.

        Raises:
            ApiError: they were not signed so (``SignatureDoesNotMatch``).
        """
        self._verify("AWS4-HMAC-SHA256-TRAILER", hashlib.sha256(lines).hexdigest(), signature, "the trailers")

    def _verify(self, algorithm: str, digests: str, signature: str, what: str) -> None:
        text = f"{algorithm}\n{self._stamp}\n{self._scope}\n{self._previous}\n{digests}"
        self._previous = hmac.new(self._secret, text.encode(), "sha256").hexdigest()
        if not hmac.compare_digest(self._previous.encode(), signature.encode()):
            msg = f"The signature of {what} does not match the one we calculated"
            raise ApiError("SignatureDoesNotMatch", msg, 403)


class AwsChunks:
    """A body in this coding, taken apart as it comes.

    Attributes:
        trailers: by lower-case name, once the body is complete.
    """

    def __init__(self, take: Callable[[memoryview], None], signer: ChunkSigner | None = None) -> None:
        """A body.

        Args:
            take: called with the bytes.
            signer: verifies the chunks' signatures; None if there are none, or nobody asks for them.
        """
        self.trailers: dict[str, str] = {}
        self._take = take
        self._signer = signer
        self._expected = _Expected.SIZE
        self._missing = 0
        self._last = False  # no other chunk may follow
        self._line = b""
        self._signature = ""
        self._sha256 = hashlib.sha256()
        self._signed_lines = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            ApiError: the framing is malformed (``InvalidRequest``), or a signature is wrong.
        """
        position = 0
        while position < len(data):
            if self._expected is _Expected.DATA:
                stop = min(len(data), position + self._missing)
                piece = memoryview(data)[position:stop]
                if self._signer is not None:
                    self._sha256.update(piece)
                self._take(piece)
                self._missing -= stop - position
                position = stop
                if not self._missing:
                    self._verify_chunk()
                    self._expected = _Expected.DATA_END
                continue
            if self._expected is _Expected.NOTHING:
                raise _malformed("it goes on after its end")
            stop = data.find(b"\n", position) + 1
            self._line += data[position : stop or len(data)]
            if len(self._line) > _LINE_BYTES:
                raise _malformed(f"{self._expected.value} is too long")
            if not stop:
                return
            position, line, self._line = stop, self._line, b""
            if not line.endswith(b"\r\n"):
                raise _malformed("a line does not end in CRLF")
            self._take_line(line[:-2])

    def finish(self) -> None:
        """The body is complete.

        Raises:
            ApiError: it is not (``IncompleteBody``).
        """
        if self._expected is not _Expected.NOTHING:
            msg = f"The body ended where {self._expected.value} should have come"
            raise ApiError("IncompleteBody", msg)

    def _take_line(self, line: bytes) -> None:
        if self._expected is _Expected.DATA_END:
            if line:
                raise _malformed("a chunk is longer than its size")
            self._expected = _Expected.SIZE
        elif self._expected is _Expected.SIZE:
            self._begin_chunk(line)
        elif line:
            self._take_trailer(line)
        else:
            self._end()

    def _begin_chunk(self, line: bytes) -> None:
        digits, _, extension = line.partition(b";")
        if not 0 < len(digits) <= 16 or digits.strip(b"0123456789abcdefABCDEF"):
            raise _malformed("a chunk's size is not a hexadecimal number")
        name, _, value = extension.partition(b"=")
        self._signature = value.decode("latin-1") if name == b"chunk-signature" else ""
        self._missing = int(digits, 16)
        if self._missing:
            if self._last:
                msg = f"Only the last chunk is allowed to have a size less than {_SHORTEST} bytes"
                raise ApiError("InvalidChunkSizeError", msg, 403)
            self._last = self._missing < _SHORTEST
            self._expected = _Expected.DATA
        else:
            self._verify_chunk()
            self._expected = _Expected.TRAILER

    def _verify_chunk(self) -> None:
        if self._signer is not None:
            digest, self._sha256 = self._sha256.hexdigest(), hashlib.sha256()
            self._signer.chunk(digest, self._signature)

    def _take_trailer(self, line: bytes) -> None:
        name, colon, value = line.decode("latin-1").partition(":")
        name, value = name.strip().lower(), value.strip()
        if not colon or not name or len(self.trailers) >= _TRAILERS:
            raise ApiError(
                "MalformedTrailerError", "The request contained trailing data that was not well-formed"
            )
        self.trailers[name] = value
        if name != _TRAILER_SIGNATURE:
            self._signed_lines += f"{name}:{value}\n".encode("latin-1")

    def _end(self) -> None:
        if self._signer is not None and (self._signed_lines or _TRAILER_SIGNATURE in self.trailers):
            self._signer.trailers(self._signed_lines, self.trailers.get(_TRAILER_SIGNATURE, ""))
        self._expected = _Expected.NOTHING


def is_chunked(headers: Mapping[str, str]) -> bool:
    """Whether a body is in this coding, as the request's headers say."""
    codings = [coding.strip().lower() for coding in headers.get("content-encoding", "").split(",")]
    return "aws-chunked" in codings or headers.get("x-amz-content-sha256", "").startswith("STREAMING-")


def _malformed(why: str) -> ApiError:
    return ApiError("InvalidRequest", f"The body is no aws-chunked body: {why}")
