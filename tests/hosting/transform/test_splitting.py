"""Objects become payloads: by lines, by RecordIO and TFRecord frames, whole, and compressed."""

import gzip
import struct
from contextlib import closing
from pathlib import Path

import pytest
from awscrt import checksums
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.transform.failures import TransformError
from halimede.hosting.transform.payloads import ObjectReader, Payload, Split

MAGIC = 0xCED7230A


def payloads(content: bytes, directory: Path, split: Split) -> list[Payload]:
    path = directory / "object"
    path.write_bytes(content)
    found: list[Payload] = []
    with closing(ObjectReader(path, split)) as reader:
        while taken := reader.take():
            found += taken
        assert reader.position == len(content)
    return found


def bodies(content: bytes, directory: Path, split: Split) -> list[bytes]:
    return [payload.body for payload in payloads(content, directory, split)]


def recordio(content: bytes, part: int = 0) -> bytes:
    return struct.pack("<II", MAGIC, part << 29 | len(content)) + content + bytes(-len(content) % 4)


def masked(data: bytes) -> int:
    crc: int = checksums.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def tfrecord(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked(length)) + content + struct.pack("<I", masked(content))


def test_without_a_split_the_object_is_one_payload(tmp_path: Path) -> None:
    assert bodies(b"1\n2\n", tmp_path, Split()) == [b"1\n2\n"]
    assert bodies(b"", tmp_path, Split()) == [b""]


def test_single_lines_are_sent_without_their_newlines(tmp_path: Path) -> None:
    assert bodies(b"1,2\n3\r\n\n4", tmp_path, Split("Line", single=True)) == [b"1,2", b"3", b"4"]


def test_lines_fill_payloads(tmp_path: Path) -> None:
    split = Split("Line", payload_bytes=6)
    found = payloads(b"1\n2\n3\n4444\n55", tmp_path, split)
    assert [payload.body for payload in found] == [b"1\n2\n3\n", b"4444\n", b"55"]
    assert [payload.count for payload in found] == [3, 1, 1]


def test_a_file_without_lines_has_no_payloads(tmp_path: Path) -> None:
    assert bodies(b"", tmp_path, Split("Line")) == []
    assert bodies(b"\n\n", tmp_path, Split("Line")) == []


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b""))))
def test_no_line_is_lost(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    directory = tmp_path_factory.mktemp("lines")
    content = b"\n".join(lines)
    kept = [line for line in lines if line]
    assert bodies(content, directory, Split("Line", single=True)) == kept
    found = payloads(content, directory, Split("Line", payload_bytes=30))
    assert b"".join(payload.body for payload in found).split() == b"\n".join(kept).split()
    assert sum(payload.count for payload in found) == len(kept)
    assert all(len(payload.body) <= 30 for payload in found)


def test_recordio_records_keep_their_frames_in_groups_and_lose_them_alone(tmp_path: Path) -> None:
    first, second = recordio(b"abcde"), recordio(b"xyz!")
    assert bodies(first + second, tmp_path, Split("RecordIO")) == [first + second]
    assert bodies(first + second, tmp_path, Split("RecordIO", single=True)) == [b"abcde", b"xyz!"]
    assert bodies(first + second, tmp_path, Split("RecordIO", payload_bytes=20)) == [first, second]


def test_recordio_record_in_parts_is_one(tmp_path: Path) -> None:
    parts = recordio(b"ab", 1) + recordio(b"cd", 2) + recordio(b"ef", 3)
    magic = struct.pack("<I", MAGIC)
    assert bodies(parts, tmp_path, Split("RecordIO", single=True)) == [b"ab" + magic + b"cd" + magic + b"ef"]
    assert bodies(parts, tmp_path, Split("RecordIO")) == [parts]


def test_tfrecords(tmp_path: Path) -> None:
    first, second = tfrecord(b"abcde"), tfrecord(b"")
    assert bodies(first + second, tmp_path, Split("TFRecord")) == [first + second]
    assert bodies(first + second, tmp_path, Split("TFRecord", single=True)) == [b"abcde", b""]


@pytest.mark.parametrize(
    ("content", "split", "text"),
    [
        (
            b"12345",
            Split(payload_bytes=4),
            "it has more than 4 bytes; raise MaxPayloadInMB, or set SplitType",
        ),
        (b"1\n12345\n", Split("Line", payload_bytes=4), "line 2 has more than 4 bytes; raise MaxPayloadInMB"),
        (recordio(b"12345"), Split("RecordIO", payload_bytes=4), "record 1 has more than 4 bytes"),
        (tfrecord(b"12345"), Split("TFRecord", payload_bytes=4), "record 1 has more than 4 bytes"),
        (recordio(b"1") + b"1234", Split("RecordIO"), "it ends within record 2"),
        (recordio(b"12345")[:-1], Split("RecordIO"), "it ends within record 1"),
        (recordio(b"12345", 1), Split("RecordIO"), "it ends within record 1"),
        (b"12345678", Split("RecordIO"), "record 1 does not begin as a RecordIO record does"),
        (recordio(b"1", 2), Split("RecordIO"), "record 1: its parts are not in order"),
        (recordio(b"1", 1) + recordio(b"1"), Split("RecordIO"), "record 1: its parts are not in order"),
        (recordio(b"1", 5), Split("RecordIO"), "record 1: its parts are not in order"),
        (tfrecord(b"1") + b"1", Split("TFRecord"), "it ends within record 2"),
        (tfrecord(b"1")[:-1], Split("TFRecord"), "it ends within record 1"),
        (b"0" * 20, Split("TFRecord"), "record 1 does not begin as a TFRecord does"),
        (tfrecord(b"1")[:-1] + b"0", Split("TFRecord"), "record 1 is damaged"),
    ],
)
def test_objects_that_cannot_be_split(content: bytes, split: Split, text: str, tmp_path: Path) -> None:
    with pytest.raises(TransformError, match=text) as raised:
        bodies(content, tmp_path, split)
    assert raised.value.kind == "ClientError"


def test_compressed_objects_are_read_as_they_were(tmp_path: Path) -> None:
    content = gzip.compress(b"1\n2\n") + gzip.compress(b"3\n")
    assert bodies(content, tmp_path, Split("Line", gzipped=True)) == [b"1\n2\n3\n"]


@pytest.mark.parametrize(
    "content", [b"1\n2\n", gzip.compress(bytes(1000))[:-9], gzip.compress(b"1")[:12] + b"xx"]
)
def test_broken_compression_is_the_objects_fault(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(TransformError, match="it cannot be decompressed as gzip"):
        bodies(content, tmp_path, Split("Line", gzipped=True))


def test_a_line_of_any_length_takes_no_more_memory_than_a_payload(tmp_path: Path) -> None:
    path = tmp_path / "object"
    with path.open("wb") as file:
        file.truncate(1 << 33)  # zeros, and no newline among them
    with closing(ObjectReader(path, Split("Line", payload_bytes=1 << 20))) as reader:
        with pytest.raises(TransformError, match="line 1 has more than"):
            reader.take()
        assert reader.position < 1 << 24
