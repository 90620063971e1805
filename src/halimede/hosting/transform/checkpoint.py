"""How far an output has been written, for the next process of the host. Blocks: not for the event loop."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import orjson

from halimede.hosting.transform.payloads import Split


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far an object has been transformed.

    Attributes:
        basis: the object's content and how it is split; a checkpoint of another one is worth nothing.
        payloads: how many payloads have been answered.
        records: how many records those have.
        bytes_out: how long the output is then.
    """

    basis: str
    payloads: int = 0
    records: int = 0
    bytes_out: int = 0

    def write(self, path: Path, output: BinaryIO) -> None:
        """Keep it, after the output is on disk.

        Raises:
            OSError: it cannot be written.
        """
        output.flush()
        os.fsync(output.fileno())
        beside = path.with_suffix(".new")
        beside.write_bytes(orjson.dumps(asdict(self)))
        beside.replace(path)


def basis_of(etag: str, split: Split) -> str:
    """What a checkpoint holds for: an object's content, and payloads that are cut at the same places."""
    return f"{etag} {split.kind} {split.single} {split.payload_bytes} {split.gzipped}"


def read_checkpoint(path: Path, output: Path, basis: str) -> Checkpoint:
    """The checkpoint in a file, if that is of the same basis and its output is there; else the beginning."""
    try:
        found = Checkpoint(**orjson.loads(path.read_bytes()))
        if found.basis == basis and output.stat().st_size >= found.bytes_out:
            return found
    except (OSError, ValueError, TypeError):
        pass
    return Checkpoint(basis)
