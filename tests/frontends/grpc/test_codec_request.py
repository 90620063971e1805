from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.core import datatypes
from halimede.core.datatypes import Datatype
from halimede.core.element_counts import MAX_DIMS
from halimede.core.errors import HalimedeError, InvalidArgumentError, UnsupportedError
from halimede.core.requests import InferRequest
from halimede.core.tensors import decode_bytes
from halimede.frontends.grpc.codec_plan import RequestPlan
from halimede.frontends.grpc.codec_request import Decoded, RequestDecoder, read_id
from halimede.frontends.grpc.kserve_pb2 import InferParameter, InferTensorContents, ModelInferRequest
from tests.frontends.grpc.service_fakes import infer_request


def decoded(message: bytes | bytearray, decoder: RequestDecoder | None = None) -> Decoded:
    found = (decoder or RequestDecoder()).decode(memoryview(message))
    assert isinstance(found, tuple)
    return found


def decode(message: ModelInferRequest | bytes, decoder: RequestDecoder | None = None) -> InferRequest:
    encoded = message if isinstance(message, bytes) else message.SerializeToString()
    plan, identifier, tensors = decoded(encoded, decoder)
    return plan.request(identifier, tensors, lambda *_: None, 7, None)


def plan_of(message: ModelInferRequest) -> RequestPlan:
    plan, _, _ = decoded(message.SerializeToString())
    return plan


def with_contents(datatype: str, **contents: list[object]) -> ModelInferRequest:
    request = ModelInferRequest(model_name="m")
    request.inputs.add(
        name="i",
        datatype=datatype,
        shape=[2],
        contents=InferTensorContents(**contents),  # type: ignore[arg-type]  # keyword arguments pass through
    )
    return request


def test_a_request_has_all_that_its_message_says() -> None:
    message = infer_request(b"12345678", version="3", identifier="r1", shape=(1, 2))
    message.outputs.add(name="OUTPUT0")
    message.parameters["priority"].uint64_param = 2
    message.parameters["timeout"].int64_param = 500
    message.parameters["sequence_id"].int64_param = 9
    message.parameters["sequence_start"].bool_param = True
    message.parameters["temperature"].double_param = 0.5

    request = decode(message)

    assert (request.model_name, request.model_version, request.id) == ("identity", 3, "r1")
    tensor = request.inputs["INPUT0"]
    assert (tensor.datatype, tensor.shape, bytes(tensor.data)) == (datatypes.FP32, (1, 2), b"12345678")
    assert request.outputs == ("OUTPUT0",)
    assert (request.priority, request.timeout_us) == (2, 500)
    assert (request.sequence_id, request.sequence_start, request.sequence_end) == (9, True, False)
    assert request.parameters == {"temperature": 0.5}
    assert request.received_ns == 7


def test_tensors_are_views_on_the_message() -> None:
    encoded = bytearray(infer_request(bytes(1000)).SerializeToString())
    _, _, tensors = decoded(encoded)

    assert tensors[0].obj is encoded


def test_repeated_messages_differ_only_in_tensors_and_ids() -> None:
    decoder = RequestDecoder()
    for number in range(3):
        for identifier in ("", f"id {number}"):
            data = np.array([number], np.float32).tobytes()
            request = decode(infer_request(data, identifier=identifier), decoder)

            assert request.id == identifier
            assert request.inputs["INPUT0"].array.tolist() == [number]


def test_several_tensors_of_changing_sizes_are_told_apart() -> None:
    decoder = RequestDecoder()
    for first, second in ((b"1234", b"56"), (b"12", b"3456"), (b"1234", b"56"), (b"", b"123456")):
        message = infer_request(first)
        message.inputs.add(name="INPUT1", datatype="UINT8", shape=[-1])
        message.raw_input_contents.append(second)
        request = decode(message, decoder)

        assert [bytes(tensor.data) for tensor in request.inputs.values()] == [first, second]


def test_parameters_of_one_request_are_not_those_of_the_next() -> None:
    decoder = RequestDecoder()
    message = infer_request()
    message.parameters["a"].string_param = "b"
    first = decode(message, decoder)
    assert first.parameters is not None
    first.parameters["a"] = "changed"

    assert decode(message, decoder).parameters == {"a": "b"}


def test_what_is_remembered_is_bounded() -> None:
    decoder = RequestDecoder()
    for number in range(1000):
        decode(infer_request(bytes(number), model=f"m{number}"), decoder)

    assert max(len(decoder._plans), len(decoder._templates), len(decoder._starts)) <= 256  # noqa: SLF001 - how much is remembered shows in memory only


@pytest.mark.parametrize(
    ("datatype", "field", "values", "expected"),
    [
        (datatypes.BOOL, "bool_contents", [True, False], [True, False]),
        (datatypes.INT8, "int_contents", [-128, 127], [-128, 127]),
        (datatypes.INT16, "int_contents", [-1, 2], [-1, 2]),
        (datatypes.INT32, "int_contents", [-1, 2], [-1, 2]),
        (datatypes.INT64, "int64_contents", [-1, 2**40], [-1, 2**40]),
        (datatypes.UINT8, "uint_contents", [1, 255], [1, 255]),
        (datatypes.UINT16, "uint_contents", [1, 2], [1, 2]),
        (datatypes.UINT32, "uint_contents", [1, 2], [1, 2]),
        (datatypes.UINT64, "uint64_contents", [1, 2**63], [1, 2**63]),
        (datatypes.FP32, "fp32_contents", [0.5, -1.0], [0.5, -1.0]),
        (datatypes.FP64, "fp64_contents", [0.1, -1.0], [0.1, -1.0]),
    ],
)
def test_typed_contents_are_read(
    datatype: Datatype, field: str, values: list[object], expected: list[object]
) -> None:
    request = decode(with_contents(datatype.name, **{field: values}))

    assert request.inputs["i"].array.tolist() == expected


def test_typed_strings_are_read() -> None:
    request = decode(with_contents("BYTES", bytes_contents=[b"a", b""]))

    assert decode_bytes(request.inputs["i"].data) == [b"a", b""]


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "INT32", "BYTES", "FP64"])
def test_contents_of_another_datatype_are_refused(datatype: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        decode(with_contents(datatype, fp32_contents=[1.0, 2.0]))

    assert caught.value.message == (
        "unexpected explicit tensor data for input tensor 'i' for model 'm' of type 'FP32', "
        f"expected datatype '{datatype}'"
    )


@pytest.mark.parametrize(
    ("datatype", "field", "value", "expected"),
    [
        ("INT8", "int_contents", 128, "an integer from -128 to 127"),
        ("INT8", "int_contents", -129, "an integer from -128 to 127"),
        ("INT16", "int_contents", 32768, "an integer from -32768 to 32767"),
        ("INT16", "int_contents", -32769, "an integer from -32768 to 32767"),
        ("UINT8", "uint_contents", 256, "an integer from 0 to 255"),
        ("UINT16", "uint_contents", 2**32 - 1, "an integer from 0 to 65535"),
    ],
)
def test_contents_that_do_not_fit_are_refused(datatype: str, field: str, value: int, expected: str) -> None:
    values: list[object] = [1, value]
    with pytest.raises(InvalidArgumentError) as error:
        decode(with_contents(datatype, **{field: values}))
    assert error.value.message == (
        f"value out of range: input 'i' of datatype {datatype} has {value} at position [1], expected {expected}"
    )


def test_contents_beside_raw_contents_are_refused() -> None:
    message = with_contents("FP32", fp32_contents=[1.0, 2.0])
    message.raw_input_contents.append(bytes(8))

    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)
    assert caught.value.message == (
        "contents field must not be specified when using raw_input_contents for 'i' for model 'm'"
    )


def test_an_input_without_data_is_refused() -> None:
    message = ModelInferRequest(model_name="m")
    message.inputs.add(name="i", datatype="FP32", shape=[1])
    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)
    assert caught.value.message == "unable to find data for input tensor 'i' for model 'm' in request."

    message.inputs.add(name="j", datatype="FP32", shape=[1])
    message.raw_input_contents.append(bytes(4))
    with pytest.raises(InvalidArgumentError, match="unable to find data for input tensor 'j' for model 'm'"):
        decode(message)


@pytest.mark.parametrize(
    ("datatype", "contents"),
    [
        ("INT32", {"int_contents": [1, 2], "uint_contents": [1, 2]}),
        ("INT32", {"int_contents": [1, 2], "bytes_contents": [b"a", b"b"]}),
        ("FP32", {"fp32_contents": [1.0, 2.0], "fp64_contents": [1.0, 2.0]}),
    ],
)
def test_two_kinds_of_contents_in_one_input_are_refused(
    datatype: str, contents: dict[str, list[object]]
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        decode(with_contents(datatype, **contents))

    assert caught.value.message == (
        "unexpected explicit tensor data for input tensor 'i' for model 'm', binary data was already supplied."
    )


def test_more_raw_contents_than_inputs_are_refused() -> None:
    message = infer_request(b"1234")
    message.raw_input_contents.append(b"1234")

    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)

    assert caught.value.message == (
        "unexpected raw_input_contents for model 'identity': there are 1 more than inputs whose data they could be"
    )


def test_raw_contents_without_inputs_are_refused() -> None:
    message = ModelInferRequest(model_name="m", raw_input_contents=[b"1234"])

    with pytest.raises(InvalidArgumentError, match="unexpected raw_input_contents for model 'm'"):
        decode(message)


@pytest.mark.parametrize(
    ("identifier", "prefix"), [("r1", "[request id: r1] "), ("", "[request id: <id_unknown>] ")]
)
def test_a_repeated_input_is_refused_with_the_id_of_the_request(identifier: str, prefix: str) -> None:
    message = infer_request(identifier=identifier)
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
    message.raw_input_contents.append(bytes(4))

    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)
    assert caught.value.message == f"{prefix}input 'INPUT0' already exists in request"


@pytest.mark.parametrize("dimensions", [MAX_DIMS + 1, 100_000])
def test_more_dimensions_than_arrays_have_are_refused_without_a_list_of_them(dimensions: int) -> None:
    message = with_contents("FP32")
    message.inputs[0].shape[:] = [1] * dimensions
    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)
    assert caught.value.message == (
        f"shape of input '{message.inputs[0].name}' has {dimensions} dimensions, and the maximum is {MAX_DIMS}"
    )


@pytest.mark.parametrize(
    ("identifier", "prefix"), [("r1", "[request id: r1] "), ("", "[request id: <id_unknown>] ")]
)
@pytest.mark.parametrize("classes", [0, 2])
def test_a_repeated_output_is_refused_with_the_id_of_the_request(
    identifier: str, prefix: str, classes: int
) -> None:
    message = infer_request(identifier=identifier)
    for _ in range(2):
        output = message.outputs.add(name="o")
        if classes:
            output.parameters["classification"].int64_param = classes

    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)
    assert caught.value.message == f"{prefix}output 'o' already exists in request"


def test_a_request_that_contradicts_itself_names_its_model_all_the_same() -> None:
    message = infer_request(model="m", version="3")
    message.parameters["priority"].int64_param = -1
    plan = plan_of(message)

    assert (plan.model_name, plan.model_version) == ("m", 3)
    with pytest.raises(InvalidArgumentError, match="priority"):
        decode(message)


def test_an_unknown_datatype_is_left_to_the_model_to_refuse() -> None:
    tensor = decode(infer_request(datatype="FLOAT")).inputs["INPUT0"]

    assert str(tensor.datatype) == "<invalid>"


def test_contents_of_an_unknown_datatype_are_refused() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        decode(with_contents("FLOAT", fp32_contents=[1.0, 2.0]))

    assert caught.value.message == (
        "unexpected explicit tensor data for input tensor 'i' for model 'm' of type 'FP32', "
        "expected datatype '<invalid>'"
    )


@pytest.mark.parametrize(
    ("name", "parameter", "text"),
    [
        (
            "sequence_id",
            InferParameter(bool_param=True),
            "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.",
        ),
        (
            "sequence_start",
            InferParameter(int64_param=1),
            "invalid value type for 'sequence_start' parameter, expected bool_param.",
        ),
        (
            "priority",
            InferParameter(int64_param=-1),
            "invalid value for 'priority', expected value >= 0.",
        ),
        (
            "timeout",
            InferParameter(uint64_param=1),
            "invalid value type for 'timeout' parameter, expected int64_param.",
        ),
        (
            "custom",
            InferParameter(uint64_param=1),
            ("invalid value type for 'custom' parameter, expected int64_param, bool_param, or string_param."),
        ),
        (
            "custom",
            InferParameter(),
            ("invalid value type for 'custom' parameter, expected int64_param, bool_param, or string_param."),
        ),
    ],
)
def test_parameters_of_a_wrong_type_are_refused(name: str, parameter: InferParameter, text: str) -> None:
    message = infer_request()
    message.parameters[name].CopyFrom(parameter)

    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)
    assert caught.value.message == text


def test_reserved_parameters_are_refused_but_for_one() -> None:
    message = infer_request()
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    plan = plan_of(message)
    assert plan.parameters is not None
    assert plan.parameters.empty_final

    message.parameters["triton_other"].uint64_param = 1
    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)
    assert caught.value.message == (
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
        "'triton_' are allowed: triton_enable_empty_final_response"
    )


def test_a_negative_timeout_is_a_very_long_one() -> None:
    message = infer_request()
    message.parameters["timeout"].int64_param = -5

    assert decode(message).timeout_us == 2**64 - 5


def test_text_as_a_sequence_id_has_a_longest_length() -> None:
    message = infer_request()
    message.parameters["sequence_id"].string_param = "x" * 128
    assert decode(message).sequence_id == "x" * 128

    message.parameters["sequence_id"].string_param = "x" * 129
    with pytest.raises(
        UnsupportedError, match=r"^string correlation ID cannot be longer than 128 characters$"
    ):
        decode(message)


def test_sequence_ids_may_be_text_and_are_unsigned() -> None:
    message = infer_request()
    message.parameters["sequence_id"].string_param = "abc"
    assert decode(message).sequence_id == "abc"

    message.parameters["sequence_id"].int64_param = -1
    assert decode(message).sequence_id == 2**64 - 1


def test_classification_needs_a_positive_count() -> None:
    message = infer_request()
    wanted = message.outputs.add(name="o").parameters["classification"]
    wanted.int64_param = 3
    assert plan_of(message).classes == {"o": 3}

    for count in (0, -5):
        wanted.int64_param = count
        with pytest.raises(
            InvalidArgumentError, match=r"^invalid value for 'classification' parameter, expected >= 0$"
        ):
            decode(message)
    wanted.string_param = "3"
    with pytest.raises(
        InvalidArgumentError,
        match=r"^invalid value type for 'classification' parameter, expected int64_param$",
    ):
        decode(message)


SHARED_MEMORY = [
    (
        {"shared_memory_region": InferParameter(int64_param=1)},
        "invalid value type for 'shared_memory_region' parameter for tensor 'T', expected string_param.",
    ),
    (
        {"shared_memory_region": InferParameter(string_param="r")},
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'T'",
    ),
    (
        {"shared_memory_byte_size": InferParameter(string_param="4")},
        "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter for tensor 'T'",
    ),
    (
        {"shared_memory_offset": InferParameter(int64_param=4)},
        "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'T'",
    ),
    (
        {
            "shared_memory_region": InferParameter(string_param="r"),
            "shared_memory_byte_size": InferParameter(bool_param=True),
        },
        "invalid value type for 'shared_memory_byte_size' parameter for tensor 'T', expected int64_param.",
    ),
    (
        {
            "shared_memory_region": InferParameter(string_param="r"),
            "shared_memory_offset": InferParameter(),
            "shared_memory_byte_size": InferParameter(bool_param=True),
        },
        "invalid value type for 'shared_memory_offset' parameter for tensor 'T', expected int64_param.",
    ),
]


@pytest.mark.parametrize(("parameters", "text"), SHARED_MEMORY)
@pytest.mark.parametrize("kind", ["input", "output"])
def test_parameters_of_shared_memory_have_to_make_sense(
    kind: str, parameters: dict[str, InferParameter], text: str
) -> None:
    message = infer_request()
    tensor = message.inputs[0] if kind == "input" else message.outputs.add()
    tensor.name = "T"
    for name, parameter in parameters.items():
        tensor.parameters[name].CopyFrom(parameter)

    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)
    assert caught.value.message == text


def test_tensors_in_regions_have_their_places_in_the_plan() -> None:
    message = infer_request()
    message.ClearField("raw_input_contents")
    in_region(message.inputs[0].parameters)
    in_region(message.outputs.add(name="o").parameters)
    message.outputs[0].parameters["shared_memory_offset"].int64_param = 16
    decoder = RequestDecoder()
    for identifier in ("", "", "7"):
        message.id = identifier
        plan, found, tensors = decoded(message.SerializeToString(), decoder)
        assert found == identifier
        assert plan.places is not None
        assert plan.places.inputs["INPUT0"].region == "r"
        assert plan.places.outputs["o"].offset == 16
        assert plan.request(found, tensors, lambda *_: None, 0, None).inputs.keys() == {"INPUT0"}


def test_raw_tensors_are_those_of_inputs_that_are_in_no_region() -> None:
    message = infer_request(b"12345678")
    in_region(message.inputs[0].parameters)
    with pytest.raises(InvalidArgumentError, match="there are 1 more than inputs"):
        decode(message)

    message.inputs.add(name="other", datatype="FP32", shape=[2])
    assert bytes(decode(message).inputs["other"].data) == b"12345678"

    message.inputs.add(name="third", datatype="FP32", shape=[2])
    with pytest.raises(InvalidArgumentError, match="unable to find data for input tensor 'third'"):
        decode(message)


def test_shared_memory_excludes_contents_and_classification() -> None:
    message = with_contents("FP32", fp32_contents=[1.0, 2.0])
    in_region(message.inputs[0].parameters)
    with pytest.raises(InvalidArgumentError) as caught:
        decode(message)
    assert caught.value.message == (
        "unexpected 'content' provided when using shared memory for input tensor 'i' for model 'm'"
    )

    message = infer_request()
    parameters = message.outputs.add(name="o").parameters
    in_region(parameters)
    parameters["classification"].int64_param = 2
    with pytest.raises(
        InvalidArgumentError, match=r"^output can't set both 'shared_memory_region' and 'classification'$"
    ):
        decode(message)


def in_region(parameters: Any) -> None:
    parameters["shared_memory_region"].string_param = "r"
    parameters["shared_memory_byte_size"].int64_param = 4


def test_unusual_encodings_are_decoded_by_protobuf() -> None:
    encoded = infer_request(b"1234", identifier="x").SerializeToString()
    unknown_fixed32 = b"\x7dabcd"

    request = decode(encoded + unknown_fixed32)

    assert request.id == "x"
    assert bytes(request.inputs["INPUT0"].data) == b"1234"


def test_an_id_that_is_not_text_is_refused() -> None:
    encoded = infer_request(b"1234").SerializeToString() + b"\x1a\x01\xff"

    with pytest.raises(InvalidArgumentError, match="not a valid ModelInferRequest message"):
        decode(encoded)
    assert read_id(memoryview(encoded)) == "\N{REPLACEMENT CHARACTER}"


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_our_errors(encoded: bytes) -> None:
    name = refused = ""
    try:
        name = decode(encoded).model_name
    except HalimedeError as error:
        refused = error.message
    assert refused or name == ModelInferRequest.FromString(encoded).model_name


@settings(max_examples=100)
@given(st.data())
def test_damaged_requests_are_refused_or_read_as_protobuf_reads_them(data: st.DataObject) -> None:
    decoder = RequestDecoder()
    message = infer_request(b"12345678", identifier=data.draw(st.sampled_from(["", "id"])), shape=(2,))
    message.inputs.add(name="INPUT1", datatype="BYTES", shape=[1])
    message.raw_input_contents.append(b"\1\0\0\0a")
    encoded = bytearray(message.SerializeToString())
    decode(bytes(encoded), decoder)
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        request = decode(bytes(encoded), decoder)
    except HalimedeError:
        return
    expected = ModelInferRequest.FromString(bytes(encoded))
    assert request.model_name == expected.model_name
    assert request.id == expected.id
    raw = list(expected.raw_input_contents)[: len(expected.inputs)]
    assert [bytes(tensor.data) for tensor in request.inputs.values()] == raw
    assert list(request.inputs) == [entry.name for entry in expected.inputs]
