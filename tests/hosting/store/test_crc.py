"""Checks against published values, and against zlib for the one that it has."""

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.store.crc import CRC32, CRC32C, CRC64NVME, Crc


@pytest.mark.parametrize(
    ("crc", "check"), [(CRC32, 0xCBF43926), (CRC32C, 0xE3069283), (CRC64NVME, 0xAE8B14860A799888)]
)
def test_published_check_values(crc: Crc, check: int) -> None:
    assert crc.update(b"123456789") == check


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 300, 1000, 65_536, 100_003, 1 << 20])
def test_any_length_is_what_zlib_says(size: int) -> None:
    data = os.urandom(size)
    assert CRC32.update(data) == zlib.crc32(data)
    assert CRC32.update(memoryview(data)) == zlib.crc32(data)


@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_pieces_are_the_same_as_the_whole(data: bytes, place: int) -> None:
    first, second = data[:place], data[place:]
    for crc in (CRC32C, CRC64NVME):
        whole = crc.update(data)
        assert crc.update(second, crc.update(first)) == whole
        assert crc.combine(crc.update(first), crc.update(second), len(second)) == whole


def test_long_pieces_are_combined_without_their_bytes() -> None:
    data = os.urandom(1 << 16)
    whole = 0
    for _ in range(64):
        whole = zlib.crc32(data, whole)
    half = 0
    for _ in range(32):
        half = zlib.crc32(data, half)
    assert CRC32.combine(half, half, 32 << 16) == whole
