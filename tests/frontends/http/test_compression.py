import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.http.compression import (
    UnsupportedEncodingError,
    deflate,
    inflate,
    is_compressed,
    response_encoding,
)


@given(st.lists(st.binary(max_size=50), max_size=4), st.sampled_from(["gzip", "deflate"]))
def test_what_is_deflated_is_inflated(parts: list[bytes], encoding: str) -> None:
    assert inflate(deflate(parts, encoding), 1000) == b"".join(parts)


def test_clients_can_read_both() -> None:
    assert gzip.decompress(deflate([b"a", b"b"], "gzip")) == b"ab"
    assert zlib.decompress(deflate([b"a", b"b"], "deflate")) == b"ab"


def test_bomb_is_refused_before_it_is_inflated() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    text = "Decompressed data size exceeds the maximum allowed value of 1000 bytes. Use --http-max-input-size"
    with pytest.raises(InvalidArgumentError, match=text):
        inflate(bomb, 1000)
    assert inflate(gzip.compress(bytes(1000)), 1000) == bytes(1000)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "nothing to be decompressed"),
        (b"no zlib", "failed to decompress"),
        (gzip.compress(b"x" * 100)[:-9], "ends early"),
        (gzip.compress(b"x") + b"more", "more data follows"),
    ],
)
def test_damaged_data_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        inflate(data, 1000)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_inflated_or_refused(data: bytes) -> None:
    size, refused = 0, ""
    try:
        size = len(inflate(b"\x1f\x8b\x08\x00" + data, 1000) or b"")
    except InvalidArgumentError as error:
        refused = error.message
    assert refused or size <= 1000


@pytest.mark.parametrize(
    ("header", "compressed"), [(None, False), ("identity", False), ("GZIP", True), ("deflate", True)]
)
def test_content_encoding_says_whether_to_inflate(header: str | None, compressed: bool) -> None:
    assert is_compressed(header) is compressed


@pytest.mark.parametrize("header", ["br", "gzip, deflate", "zstd"])
def test_unknown_content_encoding_is_unsupported(header: str) -> None:
    with pytest.raises(UnsupportedEncodingError, match="Unsupported compression type"):
        is_compressed(header)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("gzip", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("gzip;q=0.5, identity", ""),
        ("identity;q=0.5, GZIP", "gzip"),
        ("br, zstd", ""),
        ("gzip;q=0", ""),
        ("gzip;q=nonsense", ""),
        ("*", ""),
        ("", ""),
    ],
)
def test_best_accepted_encoding_is_chosen(accept: str, chosen: str) -> None:
    assert response_encoding(accept) == chosen
