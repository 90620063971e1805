"""Header blocks both ways."""

from urllib.parse import unquote

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from halimede.core.clock import MILLISECOND, SECOND
from halimede.frontends.grpc.transport.call import UnaryMethod
from halimede.frontends.grpc.transport.frames import ConnectionFault, ErrorCode
from halimede.frontends.grpc.transport.headers import (
    HeaderReader,
    MalformedHeadersError,
    count_fields,
    decode_binary,
    parse_timeout,
)
from halimede.frontends.grpc.transport.responses import MAX_MESSAGE, percent_encode, trailers, trailers_only

METHOD = UnaryMethod(lambda call, message: None, compression=6)
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/s/m"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def reader(limit: int = 16_384) -> HeaderReader:
    return HeaderReader({"/s/m": METHOD}, limit)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1H", 3600 * SECOND),
        ("2M", 120 * SECOND),
        ("30S", 30 * SECOND),
        ("5m", 5 * MILLISECOND),
        ("7u", 7000),
        ("9n", 9),
    ],
)
def test_timeouts(text: str, nanoseconds: int) -> None:
    assert parse_timeout(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "5", "S", "-1S", "1s", "123456789S", "1.5S", "1S ", "١S"])
def test_bad_timeouts(text: str) -> None:
    with pytest.raises(ValueError, match="grpc-timeout"):
        parse_timeout(text)


@pytest.mark.parametrize(
    ("content_type", "refused"),
    [
        ("application/grpc", False),
        ("application/grpc+proto", False),
        ("application/grpc;charset=utf-8", False),
        ("Application/gRPC ; charset=utf-8", False),
        ("application/grpc-web", True),
        ("application/grp", True),
        ("text/plain; application/grpc", True),
        ("", True),
    ],
)
def test_media_types_of_grpc(content_type: str, refused: bool) -> None:
    fields = [(name, content_type if name == "content-type" else value) for name, value in REQUEST]
    assert bool(reader().read(Encoder().encode(fields)).refusal) is refused


def test_same_block_gives_the_same_head_without_decoding_again() -> None:
    encoder = Encoder()
    one = reader()
    first = one.read(encoder.encode(REQUEST))
    block = encoder.encode(REQUEST)
    second = one.read(block)
    assert second == first
    assert one.read(block) is second


def test_block_is_forgotten_when_the_table_changes() -> None:
    encoder = Encoder()
    one = reader()
    one.read(encoder.encode([*REQUEST, ("user", "a")]))
    block = encoder.encode([*REQUEST, ("user", "a")])
    assert one.read(block).metadata == {"user": "a"}
    one.skip(encoder.encode([("x-one", "1")]))
    # the same bytes now point one further into the table: whatever they say, it is not user a
    try:
        metadata = dict(one.read(block).metadata)
    except MalformedHeadersError:
        metadata = {}
    assert metadata != {"user": "a"}


@pytest.mark.parametrize("value", [" x", "x ", "  x  ", "\tx", " ", ""])
def test_metadata_keeps_the_spaces_at_its_ends(value: str) -> None:
    assert reader().read(Encoder().encode([*REQUEST, ("a", value)])).metadata == {"a": value}


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b"])
def test_metadata_with_line_ends_or_zeros_is_malformed(value: str) -> None:
    with pytest.raises(MalformedHeadersError):
        reader().read(Encoder().encode([*REQUEST, ("a", value)]))


def test_repeated_metadata_is_joined_and_binary_gives_the_last() -> None:
    fields = [("a", "1"), ("a", "2"), ("b-bin", "AAE="), ("b-bin", "AAI")]
    assert reader().read(Encoder().encode([*REQUEST, *fields])).metadata == {"a": "1,2", "b-bin": b"\x00\x02"}


@given(st.binary(max_size=50))
@examples(max_examples=50)
def test_binary_metadata_with_and_without_padding(value: bytes) -> None:
    from base64 import b64encode

    text = b64encode(value).decode()
    assert decode_binary("x-bin", text) == decode_binary("x-bin", text.rstrip("=")) == value


def test_compression_only_where_the_client_accepts_it() -> None:
    for accepted, level in (("gzip", 6), ("identity, gzip,deflate", 6), ("identity", 0), ("gzipped", 0)):
        head = reader().read(Encoder().encode([*REQUEST, ("grpc-accept-encoding", accepted)]))
        assert head.compression == level


@given(st.text(max_size=200))
@examples(max_examples=100)
def test_any_message_survives_the_trailers(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    fields = {str(name): str(value) for name, value in Decoder().decode(trailers(13, text))}
    assert fields["grpc-status"] == "13"
    assert unquote(fields.get("grpc-message", "")) == text
    assert all(0x20 <= ord(character) < 0x7F for character in fields.get("grpc-message", ""))


def test_endless_message_is_cut_to_what_clients_take() -> None:
    for text in ("x" * 10**6, "é" * 10**6, "%" * 10**6):
        encoded = percent_encode(text)
        assert len(encoded) <= MAX_MESSAGE
        assert unquote(encoded, errors="strict" if "é" not in text else "replace")
    assert len(trailers_only(13, "x" * 10**6)) < 8192


@given(st.binary(max_size=300))
@examples(max_examples=200)
def test_any_block_is_understood_or_refused(block: bytes) -> None:
    one = reader()
    codes: set[ErrorCode] = set()
    for _ in range(2):
        try:
            head = one.read(block)
        except MalformedHeadersError:
            pass
        except ConnectionFault as fault:
            codes.add(fault.code)
        else:
            assert head.refusal or head.method is METHOD
    assert codes <= {ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("a", "te", ":path", "x" * 130)), st.text("aZ~", max_size=300), st.booleans()
        ),
        max_size=40,
    ),
    st.booleans(),
    st.none() | st.integers(0, 4096),
)
def test_fields_are_counted_without_decoding(
    fields: list[tuple[str, str, bool]], huffman: bool, table_size: int | None
) -> None:
    encoder = Encoder()
    if table_size is not None:
        encoder.header_table_size = table_size
    assert count_fields(encoder.encode(fields, huffman=huffman)) == len(fields)


@given(st.binary(max_size=200))
def test_fields_of_any_bytes_are_counted(block: bytes) -> None:
    assert 0 <= count_fields(block) <= len(block)


def test_256_headers_are_decoded() -> None:
    block = Encoder().encode([*REQUEST, *[("a", "")] * 251])
    assert len(block) > 256
    assert reader().read(block).method is METHOD
