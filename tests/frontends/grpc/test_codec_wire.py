from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.frontends.grpc.codec_wire import field_head, joined, split_request, varint
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest

names = st.text(max_size=8)
raws = st.lists(st.binary(max_size=300), max_size=4)


@st.composite
def requests(draw: st.DrawFn) -> ModelInferRequest:
    request = ModelInferRequest(model_name=draw(names), model_version=draw(names), id=draw(names))
    for name in draw(st.lists(names, max_size=3)):
        request.inputs.add(
            name=name, datatype=draw(names), shape=draw(st.lists(st.integers(-1, 2**40), max_size=3))
        )
    for name in draw(st.lists(names, max_size=3)):
        request.outputs.add(name=name).parameters["classification"].int64_param = draw(st.integers(0, 9))
    request.raw_input_contents.extend(draw(raws))
    return request


def rebuilt(encoded: bytes) -> ModelInferRequest | None:
    """The message put together again from its parts."""
    split = split_request(memoryview(encoded))
    if split is None:
        return None
    described, identifier, spans = split
    message = ModelInferRequest.FromString(joined(described))
    message.id = identifier.decode()
    message.raw_input_contents.extend(encoded[start:end] for start, end in spans)
    return message


@settings(max_examples=100)
@given(requests())
def test_parts_are_what_protobuf_reads(request_: ModelInferRequest) -> None:
    assert rebuilt(request_.SerializeToString()) == request_


@settings(max_examples=60)
@given(st.lists(requests(), max_size=3))
def test_fields_in_any_order_and_repeated_are_what_protobuf_reads(pieces: list[ModelInferRequest]) -> None:
    encoded = b"".join(piece.SerializeToString() for piece in pieces)

    assert rebuilt(encoded) == ModelInferRequest.FromString(encoded)


@settings(max_examples=60)
@given(requests(), st.data())
def test_a_message_that_is_cut_off_is_no_message_or_a_shorter_one(
    request_: ModelInferRequest, data: st.DataObject
) -> None:
    encoded = request_.SerializeToString()
    cut = encoded[: data.draw(st.integers(0, len(encoded)))]
    split = split_request(memoryview(cut))

    if split is not None:
        assert rebuilt(cut) == ModelInferRequest.FromString(cut)


def test_unusual_encodings_are_left_to_protobuf() -> None:
    overlong_tag = b"\xba\x00\x01x"
    group = b"\x43\x44"
    fixed32 = b"\x45abcd"
    endless_length = b"\x3a" + b"\xff" * 12
    cut_length = b"\x3a\x80"

    for encoded in (overlong_tag, group, fixed32, endless_length, cut_length, b"\x3a", b"\x3a\x05abc"):
        assert split_request(memoryview(encoded)) is None


def test_an_overlong_length_is_read() -> None:
    encoded = b"\x3a\x83\x00abc"

    assert split_request(memoryview(encoded)) == ([], b"", [(3, 6)])
    assert ModelInferRequest.FromString(encoded).raw_input_contents[0] == b"abc"


def test_a_length_beyond_the_message_is_left_to_protobuf() -> None:
    assert split_request(memoryview(b"\x3a\xff\xff\xff\xff\x7f")) is None


@settings(max_examples=60)
@given(st.integers(1, 15), st.integers(0, 2**31 - 1))
def test_field_heads_are_protobufs(number: int, length: int) -> None:
    decoded, shift = 0, 0
    for byte in varint(length):
        decoded |= (byte & 0x7F) << shift
        shift += 7
    assert decoded == length
    assert field_head(number, length) == bytes((number << 3 | 2,)) + varint(length)
