"""Spool files to records: `python -m halimede.hosting.capture.conversion FILE…`, a process of its own.

Bodies that are no text become BASE64, which takes a millisecond of a processor for a megabyte: not the host's, nor
before anything that has to be answered. Prints a line of JSON for each file.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from halimede.core.cpus import yield_processors
from halimede.hosting.capture.records import CaptureRecord, Payload, write_record
from halimede.hosting.capture.spool import RECORDS, Frame, SpoolError, read_frames

_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Converted:
    """A file that has been made into records.

    Attributes:
        path: of the records.
        count: how many there are.
        cut: whether the end of the file was cut off or damaged, and left out.
    """

    path: Path
    count: int
    cut: bool


class ConversionError(Exception):
    """The process has failed."""


def convert_apart(paths: Sequence[Path]) -> list[Converted]:
    """Make files into records in another process, and return when it is done.

    Raises:
        ConversionError: some of them could not be.
    """
    command = [sys.executable, "-P", "-m", "halimede.hosting.capture.conversion", *map(str, paths)]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
        lines = list(map(orjson.loads, done.stdout.splitlines()))
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise ConversionError(str(error)) from None
    if len(lines) < len(paths):
        words = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
        raise ConversionError(words[-1])
    return [
        Converted(path.with_suffix(RECORDS), line["count"], line["cut"])
        for path, line in zip(paths, lines, strict=True)
    ]


def convert(path: Path) -> Converted:
    """Make a file into records, beside it.

    Raises:
        OSError: it cannot be read, or the records cannot be written.
    """
    count, cut = 0, False
    target = path.with_suffix(RECORDS)
    with target.open("wb") as output:
        try:
            for line in _lines(path):
                output.write(line)
                count += 1
        except SpoolError:
            cut = True
    return Converted(target, count, cut)


def _lines(path: Path) -> Iterator[bytes]:
    for frame in read_frames(path):
        try:
            line = write_record(_record(frame))
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
            # damaged in a way that is JSON all the same; no other file is to wait for it
            raise SpoolError(frame.end) from None
        yield line


def _record(frame: Frame) -> CaptureRecord:
    about = frame.about
    attributes = about.get("customAttributes")
    return CaptureRecord(
        about["eventId"],
        datetime.fromtimestamp(about["time"], UTC),
        _payload(frame.asked, about.get("input")),
        _payload(frame.answered, about.get("output")),
        about.get("inferenceId", ""),
        () if attributes is None else (attributes,),
        about.get("targetModel", ""),
        about.get("source", ""),
    )


def _payload(body: bytes, kept: Any) -> Payload | None:
    if kept is None:
        return None
    content_type, encoding = kept
    return Payload(body, content_type, encoding)


def main() -> None:
    """Make all files into records that the arguments name, with time of processors that nobody else wants."""
    yield_processors()
    for name in sys.argv[1:]:
        done = convert(Path(name))
        sys.stdout.buffer.write(
            orjson.dumps({"count": done.count, "cut": done.cut}, option=orjson.OPT_APPEND_NEWLINE)
        )
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
