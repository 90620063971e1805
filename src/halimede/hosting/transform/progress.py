"""How far a job is: what is kept of it over restarts, and what users are told."""

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Counts:
    """What has been done.

    Attributes:
        objects: objects that have been transformed.
        records: their records; a payload that is not split is one.
        bytes_in: their bytes.
        bytes_out: bytes of the outputs.
    """

    objects: int = 0
    records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def add(self, other: "Counts") -> None:
        """Count more."""
        self.objects += other.objects
        self.records += other.records
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out


@dataclass(slots=True)
class Progress:
    """How far a job is.

    Attributes:
        total: how many objects there are.
        total_bytes: their bytes, as far as those are known.
        failed: how many cannot be transformed.
        counts: what has been done.
        done: a bit for each object, set when its output is there.
    """

    total: int = 0
    total_bytes: int = 0
    failed: int = 0
    counts: Counts = field(default_factory=Counts)
    done: bytearray = field(default_factory=bytearray)

    def is_done(self, index: int) -> bool:
        """Whether the output of an object is there."""
        byte = index >> 3
        return byte < len(self.done) and bool(self.done[byte] >> (index & 7) & 1)

    def finish(self, index: int, counts: Counts) -> None:
        """The output of an object is there."""
        byte = index >> 3
        if byte >= len(self.done):
            self.done.extend(bytes(byte + 1 - len(self.done)))
        self.done[byte] |= 1 << (index & 7)
        self.counts.add(counts)

    def document(self) -> dict[str, Any]:
        """What is kept."""
        return {**asdict(self), "done": base64.b64encode(self.done).decode()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Progress":
        """What was kept."""
        counts, done = Counts(**document["counts"]), bytearray(base64.b64decode(document["done"]))
        return cls(document["total"], document["total_bytes"], document["failed"], counts, done)
