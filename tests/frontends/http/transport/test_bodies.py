import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.frontends.http.transport.bodies import ChunkedBody
from halimede.http1.head import Refusal
from halimede.net.receiving import ReceiveBudget, ReceiveError


class Nobody:
    """Receives a body, and is never told anything."""

    @property
    def may_send(self) -> bool:
        return True

    def hold_back(self) -> None:
        raise AssertionError

    def go_on(self) -> None:
        raise AssertionError

    def refuse_body(self, error: ReceiveError) -> None:
        raise AssertionError(error)


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def body(max_bytes: int = 1000, max_chunks: int = 10, max_trailer_bytes: int = 100) -> ChunkedBody:
    reception = ReceiveBudget().open(Nobody(), -1)
    return ChunkedBody(reception, max_bytes, max_chunks, max_trailer_bytes)


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=5), st.data())
@settings(max_examples=100)
def test_chunks_cut_anywhere_give_the_same_body(chunks: list[bytes], data: st.DataObject) -> None:
    wire = chunked(*chunks)
    taken = body()
    position = 0
    while position < len(wire):
        step = data.draw(st.integers(1, len(wire) - position))
        end = taken.feed(wire[position : position + step])
        position += step
    assert end == step
    assert bytes(taken.body) == b"".join(chunks)


@given(st.binary(max_size=100))
@settings(max_examples=100)
def test_arbitrary_bytes_are_taken_or_refused(data: bytes) -> None:
    try:
        end = body().feed(data)
    except Refusal:
        return
    assert -1 <= end <= len(data)


def test_what_follows_the_body_is_left() -> None:
    taken = body()
    wire = b"3;name=value\r\nabc\r\n0\r\nTrailer: x\r\n\r\n"
    assert taken.feed(wire + b"GET /") == len(wire)
    assert bytes(taken.body) == b"abc"


@pytest.mark.parametrize(
    ("wire", "status", "text"),
    [
        (b"zz\r\n", 400, "not a hexadecimal number"),
        (b"-1\r\n", 400, "not a hexadecimal number"),
        (b"\r\n", 400, "not a hexadecimal number"),
        (b"1" * 20 + b"\r\n", 400, "not a hexadecimal number"),
        (b"3\nabc", 400, "CRLF"),
        (b"3\r\nabcd\r\n", 400, "longer than its size"),
        (b"3;" + b"x" * 300, 400, "too long"),
        (b"3e9\r\n", 413, "larger than the allowed 1000 bytes"),
        (b"1\r\na\r\n" * 11, 400, "Chunked request body exceeds maximum of 10 non-empty chunks. "),
        (b"0\r\n" + b"Trailer: x\r\n" * 20, 431, "trailers"),
        (b"0\r\n" + b"T" * 200, 400, "too long"),
    ],
)
def test_malformed_or_oversized_chunks_are_refused(wire: bytes, status: int, text: str) -> None:
    with pytest.raises(Refusal, match=text) as refusal:
        body().feed(wire)
    assert refusal.value.status == status
