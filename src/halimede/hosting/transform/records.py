"""Splits what a file holds into records: lines, RecordIO and TFRecord frames. Reads block by block."""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from awscrt import checksums

from halimede.hosting.transform.failures import TransformError, client_error

_RECORDIO_HEAD = struct.Struct("<II")
_RECORDIO_MAGIC = 0xCED7230A
_RECORDIO_LENGTH = (1 << 29) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_MAGIC_BYTES = struct.pack("<I", _RECORDIO_MAGIC)

_TFRECORD_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_CRC_DELTA = 0xA282EAD8


@dataclass(frozen=True, slots=True)
class Record:
    """A record.

    Attributes:
        framed: as it is in the file, with its newline, or with its head and padding.
        content: it alone.
    """

    framed: bytes
    content: bytes


def line_records(file: BinaryIO, limit: int) -> Iterator[Record]:
    """The lines of a file; empty ones are left out.

    Raises:
        TransformError: a line has more than `limit` bytes.
    """
    number = 0
    while line := file.readline(limit + 2):
        number += 1
        content = line.rstrip(b"\r\n")
        if len(content) > limit:
            raise _too_large(f"line {number}", limit)
        if content:
            yield Record(line, content)


def recordio_records(file: BinaryIO, limit: int) -> Iterator[Record]:
    """The records of a file in MXNet's RecordIO format, which recordio-protobuf is framed with.

    Raises:
        TransformError: it is not of that format, or ends within a record, or a record has more than `limit` bytes.
    """
    number = 0
    framed, content = bytearray(), bytearray()
    while head := file.read(_RECORDIO_HEAD.size):
        name = f"record {number + 1}"
        if len(head) < _RECORDIO_HEAD.size:
            raise _cut(name)
        magic, flag_and_length = _RECORDIO_HEAD.unpack(head)
        if magic != _RECORDIO_MAGIC:
            raise client_error(f"{name} does not begin as a RecordIO record does")
        part, length = flag_and_length >> 29, flag_and_length & _RECORDIO_LENGTH
        if (part in (_WHOLE, _FIRST)) is bool(framed) or part > _LAST:
            raise client_error(f"{name}: its parts are not in order")
        if len(content) + length > limit:
            raise _too_large(name, limit)
        padded = length + -length % 4
        data = file.read(padded)
        if len(data) < padded:
            raise _cut(name)
        if part in (_MIDDLE, _LAST):  # the writer split it where its data has the magic number
            content += _MAGIC_BYTES
        framed += head + data
        content += data[:length]
        if part in (_WHOLE, _LAST):
            yield Record(bytes(framed), bytes(content))
            number += 1
            framed.clear()
            content.clear()
    if framed:
        raise _cut(f"record {number + 1}")


def tfrecord_records(file: BinaryIO, limit: int) -> Iterator[Record]:
    """The records of a file in TensorFlow's TFRecord format.

    Raises:
        TransformError: it is not of that format, is damaged, or ends within a record, or a record has more than `limit`
            bytes.
    """
    number = 0
    while head := file.read(_TFRECORD_HEAD.size):
        number += 1
        name = f"record {number}"
        if len(head) < _TFRECORD_HEAD.size:
            raise _cut(name)
        length, crc = _TFRECORD_HEAD.unpack(head)
        if _masked_crc(head[:8]) != crc:
            raise client_error(
                f"{name} does not begin as a TFRecord does: the checksum of its length is wrong"
            )
        if length > limit:
            raise _too_large(name, limit)
        data = file.read(length + _CRC.size)
        if len(data) < length + _CRC.size:
            raise _cut(name)
        content = data[:length]
        if _masked_crc(content) != _CRC.unpack(data[length:])[0]:
            raise client_error(f"{name} is damaged: its checksum is wrong")
        yield Record(head + data, content)


def _masked_crc(data: bytes) -> int:
    crc: int = checksums.crc32c(data)
    return ((crc >> 15 | crc << 17) + _CRC_DELTA) & 0xFFFFFFFF


Splitter = Callable[[BinaryIO, int], Iterator[Record]]

SPLITTERS: Mapping[str, Splitter] = {
    "Line": line_records,
    "RecordIO": recordio_records,
    "TFRecord": tfrecord_records,
}
"""By `SplitType`. Each takes a file and the most bytes that a record may have."""


def _too_large(name: str, limit: int) -> TransformError:
    return client_error(
        f"Too much data for max payload size: {name} has more than {limit:,} bytes; raise MaxPayloadInMB"
    )


def _cut(name: str) -> TransformError:
    return client_error(f"it ends within {name}")
