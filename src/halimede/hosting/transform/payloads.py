"""What of an object is sent to the model at a time. Reads files: not on the event loop."""

import gzip
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from halimede.hosting.transform.failures import client_error
from halimede.hosting.transform.processing import Processing
from halimede.hosting.transform.records import SPLITTERS, Record

_AHEAD_BYTES = 1 << 20
_AHEAD = 64

_BROKEN = (gzip.BadGzipFile, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class Split:
    """How objects become payloads.

    Attributes:
        kind: `SplitType`.
        single: `BatchStrategy` is ``SingleRecord``.
        payload_bytes: the most that one may have; 0 for any number.
        gzipped: objects are compressed.
        processing: what is done to records; None for nothing.
    """

    kind: str = "None"
    single: bool = False
    payload_bytes: int = 6 << 20
    gzipped: bool = False
    processing: Processing | None = None

    @property
    def streams(self) -> bool:
        """Whether an object is sent as a whole, however large."""
        one = self.kind == "None" or not self.single
        return not self.payload_bytes and one and self.processing is None


@dataclass(frozen=True, slots=True)
class Payload:
    """What is sent with one request.

    Attributes:
        body: the bytes.
        count: how many records those are.
        records: the records as they were, if they are needed again.
    """

    body: bytes
    count: int
    records: tuple[bytes, ...] = ()


class ObjectReader:
    """An object, payload by payload; opened once, read by one thread at a time.

    Attributes:
        file: the content, decompressed.
    """

    def __init__(self, path: Path, split: Split) -> None:
        self._raw: BufferedReader = path.open("rb")
        self.file: BinaryIO = self._raw
        if split.gzipped:
            self.file = cast("BinaryIO", gzip.GzipFile(fileobj=self._raw))
        self._split = split
        self._payloads = _payloads(self.file, split)

    @property
    def position(self) -> int:
        """How many bytes of the object have been read."""
        return 0 if self._raw.closed else self._raw.tell()

    def take(self) -> list[Payload]:
        """The next payloads; none at the end.

        Raises:
            TransformError: the object cannot be split, or a record is larger than a payload may be.
        """
        taken: list[Payload] = []
        size = 0
        try:
            for payload in islice(self._payloads, _AHEAD):
                taken.append(payload)
                size += len(payload.body)
                if size >= _AHEAD_BYTES:
                    break
        except _BROKEN as error:
            raise client_error(f"it cannot be decompressed as gzip: {error}") from None
        return taken

    def read(self, size: int) -> bytes:
        """So many bytes of the content, or what there is left.

        Raises:
            TransformError: it cannot be decompressed.
        """
        try:
            return self.file.read(size)
        except _BROKEN as error:
            raise client_error(f"it cannot be decompressed as gzip: {error}") from None

    def close(self) -> None:
        """Close the file."""
        self._payloads.close()
        self.file.close()
        self._raw.close()


_PAYLOAD_BYTES = 100 << 20
"""Of a payload that is sent at once: the most that AWS allows."""


def _payloads(file: BinaryIO, split: Split) -> Generator[Payload, None, None]:
    limit = split.payload_bytes or _PAYLOAD_BYTES
    if split.kind == "None":
        yield _whole(file, limit, split.processing)
        return
    records = SPLITTERS[split.kind](file, limit)
    if split.single:
        yield from (_single(record, split.processing) for record in records)
    elif split.processing is not None:
        yield from _grouped(_filtered(records, split.processing), limit, b"\n")
    else:
        yield from _grouped(((record.framed, record.framed) for record in records), limit, b"")


def _whole(file: BinaryIO, limit: int, processing: Processing | None) -> Payload:
    """The object as one payload."""
    content = file.read(limit + 1)
    if len(content) > limit:
        raise client_error(
            f"Too much data for max payload size: it has more than {limit:,} bytes; raise MaxPayloadInMB, or set "
            f"SplitType"
        )
    if processing is None:
        return Payload(content, 1)
    records = tuple(processing.records(content))
    return Payload(b"\n".join(processing.before(record) for record in records), len(records), records)


def _single(record: Record, processing: Processing | None) -> Payload:
    if processing is None:
        return Payload(record.content, 1)
    return Payload(processing.before(record.content), 1, (record.content,))


def _filtered(records: Iterator[Record], processing: Processing) -> Iterator[tuple[bytes, bytes]]:
    """What the model gets of each record, and the record."""
    for record in records:
        yield processing.before(record.content), record.content


def _grouped(pieces: Iterator[tuple[bytes, bytes]], limit: int, between: bytes) -> Iterator[Payload]:
    """As many records in each payload as it may have: pieces are what is sent of one, and the record."""
    bodies: list[bytes] = []
    records: list[bytes] = []
    size = 0
    for body, record in pieces:
        if bodies and size + len(between) + len(body) > limit:
            yield _group(bodies, records, between)
            bodies, records, size = [], [], 0
        size += len(body) + (len(between) if bodies else 0)
        bodies.append(body)
        if between:
            records.append(record)
    if bodies:
        yield _group(bodies, records, between)


def _group(bodies: list[bytes], records: list[bytes], between: bytes) -> Payload:
    return Payload(between.join(bodies), len(bodies), tuple(records))
