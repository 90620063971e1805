import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.core import datatypes
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import ParameterValue
from halimede.core.tensors import Tensor, encode_bytes
from halimede.frontends.grpc import codec_response
from halimede.frontends.grpc.codec_response import (
    ResponseLayout,
    encode_extras,
    refusal,
    stream_empty_final,
    stream_error,
    stream_parts,
)
from halimede.frontends.grpc.kserve_pb2 import ModelInferResponse, ModelStreamInferResponse


def fp32(*values: float) -> Tensor:
    return Tensor.from_array(datatypes.FP32, np.array(values, np.float32))


def read(layout: ResponseLayout, outputs: dict[str, Tensor], version: int = 1) -> ModelInferResponse:
    return ModelInferResponse.FromString(b"".join(layout.parts("m", version, outputs.items())))


def test_a_response_says_what_its_outputs_are() -> None:
    text = Tensor(datatypes.BYTES, (1, 2), encode_bytes([b"a", b"bc"]))

    response = read(ResponseLayout(), {"x": fp32(1, 2), "y": text}, version=7)

    assert (response.model_name, response.model_version) == ("m", "7")
    described = [(output.name, output.datatype, list(output.shape)) for output in response.outputs]
    assert described == [("x", "FP32", [2]), ("y", "BYTES", [1, 2])]
    assert list(response.raw_output_contents) == [
        np.array([1, 2], np.float32).tobytes(),
        b"\1\0\0\0a\2\0\0\0bc",
    ]


def test_tensors_are_not_copied() -> None:
    data = memoryview(bytearray(1000))

    parts = ResponseLayout().parts("m", 1, [("x", Tensor(datatypes.UINT8, (1000,), data))])

    assert parts[-1] is data


def test_a_remembered_layout_never_shows_in_a_response_that_differs() -> None:
    remembered = ResponseLayout()
    for outputs, version in (
        ({"x": fp32(1, 2)}, 1),
        ({"x": fp32(3, 4)}, 1),
        ({"x": fp32(3, 4)}, 2),
        ({"x": fp32(1, 2, 3)}, 2),
        ({"y": fp32(1, 2, 3)}, 2),
        ({"y": Tensor(datatypes.INT32, (3,), bytes(12))}, 2),
        ({"y": Tensor(datatypes.INT32, (3, 1), bytes(12))}, 2),
        ({"y": Tensor(datatypes.BYTES, (1,), b"\1\0\0\0a")}, 2),
        ({"y": Tensor(datatypes.BYTES, (1,), b"\2\0\0\0ab")}, 2),
        ({"y": fp32(1), "z": fp32(2)}, 2),
        ({}, 2),
        ({}, 2),
        ({"x": fp32()}, 2),
    ):
        assert read(remembered, outputs, version) == read(ResponseLayout(), outputs, version)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.text(max_size=5), st.lists(st.binary(max_size=20), max_size=4)), max_size=4))
def test_responses_of_any_outputs_are_what_protobuf_writes(outputs: list[tuple[str, list[bytes]]]) -> None:
    tensors = {
        name: Tensor(datatypes.BYTES, (len(elements),), encode_bytes(elements)) for name, elements in outputs
    }
    expected = ModelInferResponse(model_name="m", model_version="1")
    for name, tensor in tensors.items():
        expected.outputs.add(name=name, datatype="BYTES", shape=tensor.shape)
        expected.raw_output_contents.append(bytes(tensor.data))
    layout = ResponseLayout()

    assert read(layout, tensors) == expected
    assert read(layout, tensors) == expected


def test_a_response_larger_than_a_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_response, "_LARGEST_RESPONSE", 100)
    tensor = Tensor(datatypes.UINT8, (100,), bytes(100))
    with pytest.raises(InvalidArgumentError) as caught:
        ResponseLayout().parts("m", 1, [("x", tensor)])
    assert caught.value.message == "Response has byte size 123 which exceeds gRPC's byte size limit 100."


def test_ids_and_parameters_go_first() -> None:
    parameters: dict[str, ParameterValue] = {
        "a": True,
        "b": 3,
        "c": 2**63,
        "d": 0.5,
        "e": "text",
    }
    parts = [encode_extras("r1", parameters), *ResponseLayout().parts("m", 1, [("x", fp32(1))])]

    response = ModelInferResponse.FromString(b"".join(parts))

    assert response.id == "r1"
    found = {
        name: (
            value.WhichOneof("parameter_choice"),
            getattr(value, value.WhichOneof("parameter_choice") or ""),
        )
        for name, value in response.parameters.items()
    }
    assert found == {
        "a": ("bool_param", True),
        "b": ("int64_param", 3),
        "c": ("uint64_param", 2**63),
        "d": ("double_param", 0.5),
        "e": ("string_param", "text"),
    }
    assert response.model_name == "m"
    assert encode_extras("", None) == b""


@pytest.mark.parametrize("final", [True, False])
def test_a_streamed_response_says_whether_it_is_the_last(final: bool) -> None:
    parts = stream_parts(ResponseLayout().parts("m", 1, [("x", fp32(*range(100)))]), final=final)

    message = ModelStreamInferResponse.FromString(b"".join(parts))

    assert message.error_message == ""
    assert message.infer_response.model_name == "m"
    assert message.infer_response.parameters["triton_final_response"].bool_param is final
    assert message.infer_response.parameters["triton_final_response"].HasField("bool_param")
    assert len(message.infer_response.raw_output_contents[0]) == 400


def test_streamed_errors_and_ends_name_their_request() -> None:
    refused = ModelStreamInferResponse.FromString(refusal("wrong", "r1"))
    assert (refused.error_message, refused.infer_response) == ("wrong", ModelInferResponse(id="r1"))

    error = ModelStreamInferResponse.FromString(stream_error("wrong", "r1", "m", "3", final=False))
    assert (error.error_message, error.infer_response.id) == ("wrong", "r1")
    assert (error.infer_response.model_name, error.infer_response.model_version) == ("m", "3")
    assert error.infer_response.parameters["triton_final_response"].HasField("bool_param")
    assert not error.infer_response.parameters["triton_final_response"].bool_param

    end = ModelStreamInferResponse.FromString(b"".join(stream_empty_final("m", "", "r1")))
    assert (end.infer_response.model_name, end.infer_response.model_version) == ("m", "")
    assert end.infer_response.id == "r1"
    assert end.infer_response.parameters["triton_final_response"].bool_param
