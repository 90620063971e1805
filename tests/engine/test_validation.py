import numpy as np
import pytest

from halimede.config.signature import Signature, TensorSpec
from halimede.core.datatypes import BYTES, FP32, INT32, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor, encode_bytes
from halimede.engine.validation import validate


def spec(
    name: str,
    dims: tuple[int, ...],
    datatype: Datatype = FP32,
    *,
    reshape: tuple[int, ...] | None = None,
    optional: bool = False,
) -> TensorSpec:
    return TensorSpec(name, datatype, dims, dims if reshape is None else reshape, optional=optional)


def model(*inputs: TensorSpec, max_batch_size: int = 4) -> Signature:
    return Signature(
        max_batch_size, {item.name: item for item in inputs}, {"OUT": spec("OUT", (16,))}, decoupled=False
    )


def tensor(shape: tuple[int, ...], datatype: Datatype = FP32, data: bytes | None = None) -> Tensor:
    size = int(np.prod(shape)) * datatype.itemsize
    return Tensor(datatype, shape, bytes(max(size, 0)) if data is None else data)


def request(inputs: dict[str, Tensor], outputs: tuple[str, ...] = (), id: str = "7") -> InferRequest:  # noqa: A002 - the protocol's name
    def respond(response: InferResponse | None, final: bool) -> None:
        """Validation answers nobody."""

    return InferRequest("m", inputs, respond, outputs=outputs, id=id)


def refusal(signature: Signature, inputs: dict[str, Tensor], outputs: tuple[str, ...] = ()) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        validate(request(inputs, outputs), signature)
    assert caught.value.message.startswith("[request id: 7] ")
    return caught.value.message.removeprefix("[request id: 7] ")


ONE = model(spec("A", (16,)))


def test_a_right_request_passes_with_its_batch_size() -> None:
    asked = request({"A": tensor((3, 16))}, ("OUT",))
    validate(asked, ONE)
    assert asked.batch_size == 3


def test_a_model_without_batching_has_batch_size_one() -> None:
    asked = request({"A": tensor((16,))})
    validate(asked, model(spec("A", (16,)), max_batch_size=0))
    assert asked.batch_size == 1


def test_a_request_without_id_is_named_so() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^\[request id: <id_unknown>\] "):
        validate(request({}, id=""), ONE)


def test_an_output_that_the_model_does_not_have_is_refused_without_the_id_of_the_request() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        validate(request({"A": tensor((1, 16))}, ("X",)), ONE)
    assert caught.value.message == "unexpected inference output 'X' for model 'm'. The outputs are: OUT"


TEXTS = [
    (
        model(spec("A", (16,)), spec("B", (16,))),
        {"A": tensor((1, 16))},
        (),
        (
            "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing required input(s) "
            "['B']. Please provide all required input(s)."
        ),
    ),
    (
        model(spec("A", (16,)), spec("B", (16,), optional=True)),
        {},
        (),
        (
            "expected number of inputs between 1 and 2 but got 0 inputs for model 'm'. Got input(s) [], but missing "
            "required input(s) ['A']. Please provide all required input(s)."
        ),
    ),
    (
        model(spec("A", (16,)), spec("B", (16,), optional=True)),
        {"B": tensor((1, 16))},
        (),
        (
            "expected number of inputs between 1 and 2 but got 1 inputs for model 'm'. Got input(s) ['B'], but "
            "missing required input(s) ['A']. Please provide all required input(s)."
        ),
    ),
    (
        ONE,
        {"A": tensor((1, 16)), "B": tensor((1, 16))},
        (),
        (
            "expected 1 inputs but got 2 inputs for model 'm'. Got input(s) ['A','B'], but missing required input(s) "
            "[]. Please provide all required input(s)."
        ),
    ),
    (ONE, {"A": tensor(())}, (), "input 'A' has no shape but model requires batch dimension for 'm'"),
    (
        model(spec("A", (16,)), spec("B", (16,))),
        {"A": tensor((1, 16)), "B": tensor((2, 16))},
        (),
        "input 'A' batch size does not match other inputs for 'm'",
    ),
    (
        model(spec("A", (16,)), spec("B", (16,))),
        {"A": tensor((4,)), "B": tensor((1, 16))},
        (),
        "input 'A' batch size does not match other inputs for 'm'",
    ),
    (
        model(spec("A", (16,)), spec("B", (16,))),
        {"A": tensor((1, 16), INT32), "B": tensor(())},
        (),
        "input 'B' has no shape but model requires batch dimension for 'm'",
    ),
    (
        ONE,
        {"A": tensor((5, 15))},
        (),
        "inference request batch-size must be <= 4 for 'm'",
    ),
    (ONE, {"A": tensor((5, 16))}, (), "inference request batch-size must be <= 4 for 'm'"),
    (
        ONE,
        {"A": tensor((1, 16), INT32)},
        (),
        "inference input 'A' data-type is 'INT32', but model 'm' expects 'FP32'",
    ),
    (
        model(spec("A", (16,)), max_batch_size=0),
        {"A": tensor((15,))},
        (),
        "unexpected shape for input 'A' for model 'm'. Expected [16], got [15]. ",
    ),
    (
        model(spec("A", (-1,))),
        {"A": tensor((1, -1))},
        (),
        "All input dimensions should be specified for input 'A' for model 'm', got [1,-1]",
    ),
    (
        ONE,
        {"A": tensor((1, 16), data=bytes(60))},
        (),
        "input byte size mismatch for input 'A' for model 'm'. Expected 64, got 60",
    ),
    (
        ONE,
        {"A": tensor((0, 16))},
        (),
        "input byte size mismatch for input 'A' for model 'm'. Expected 64, got 0",
    ),
    (
        model(spec("S", (2,), BYTES)),
        {"S": tensor((0, 2), BYTES, b"")},
        (),
        "expected 2 string elements for inference input 'S' for model 'm', got 0",
    ),
]


@pytest.mark.parametrize(("signature", "inputs", "outputs", "text"), TEXTS)
def test_a_wrong_request_is_refused_with_the_text_clients_know(
    signature: Signature, inputs: dict[str, Tensor], outputs: tuple[str, ...], text: str
) -> None:
    assert refusal(signature, inputs, outputs) == text


def test_an_unexpected_input_is_told_without_the_request() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        validate(request({"X": tensor((1, 16))}), ONE)
    assert caught.value.message == "unexpected inference input 'X' for model 'm'. The inputs are: A"


def test_a_batch_of_empty_rows_may_be_empty() -> None:
    asked = request({"A": tensor((0, 0))})
    validate(asked, model(spec("A", (-1,))))
    assert asked.batch_size == 0


def test_a_wrong_shape_of_a_batching_model_says_what_a_batch_dimension_is() -> None:
    text = refusal(ONE, {"A": tensor((1, 15))})
    assert text == (
        "unexpected shape for input 'A' for model 'm'. Expected [-1,16], got [1,15]. NOTE: Setting a non-zero "
        "max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you "
        "want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size "
        "to zero. See the model configuration docs for more info on max_batch_size."
    )


STRINGS = model(spec("S", (2,), BYTES))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (encode_bytes([b"a"]), "expected 2 string elements for inference input 'S' for model 'm', got 1"),
        (
            encode_bytes([b"a", b"b", b"c"]),
            "unexpected number of string elements 3 for inference input 'S' for model 'm', expecting 2",
        ),
        (
            encode_bytes([b"a"]) + b"\x01\x00",
            (
                "incomplete string length indicator for inference input 'S' for model 'm', expecting 4 bytes but only "
                "2 bytes available. Please make sure the string length indicator is in one buffer."
            ),
        ),
    ],
)
def test_wrong_strings_are_refused(data: bytes, text: str) -> None:
    assert refusal(STRINGS, {"S": tensor((1, 2), BYTES, data)}) == text


def test_a_string_that_is_cut_off_is_refused() -> None:
    cut = tensor((1, 2), BYTES, encode_bytes([b"a"]) + b"\xff\xff\xff\xffab")
    with pytest.raises(InvalidArgumentError) as caught:
        validate(request({"S": cut}), STRINGS)
    assert caught.value.message == (
        "incomplete string data for inference input 'S', expecting string of length 4294967295 but only 2 bytes "
        "available"
    )


def test_right_strings_pass() -> None:
    validate(request({"S": tensor((1, 2), BYTES, encode_bytes([b"", "ü"]))}), STRINGS)


def test_the_backend_sees_the_reshaped_input() -> None:
    asked = request({"A": tensor((2, 3, 16))})
    validate(asked, model(spec("A", (-1, 16), reshape=(-1, 4, 4))))
    assert asked.inputs["A"].shape == (2, 3, 4, 4)


def test_a_reshape_to_a_scalar_leaves_the_batch_dimension() -> None:
    asked = request({"A": tensor((2, 1))})
    validate(asked, model(spec("A", (1,), reshape=())))
    assert asked.inputs["A"].shape == (2,)


def test_an_optional_input_may_be_left_out() -> None:
    validate(request({"A": tensor((1, 16))}), model(spec("A", (16,)), spec("B", (16,), optional=True)))


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (
            (1, 2**4, 2**60 + 2),
            (
                "shape [1, 16, 1152921504606846978] of input 'A' causes total element count to exceed maximum size of "
                "9223372036854775807"
            ),
        ),
        ((1, 4, 2**60 - 2), "byte size overflow for input 'A' of shape [1, 4, 1152921504606846974]"),
    ],
)
def test_a_shape_with_more_elements_than_can_be_counted_is_refused_as_such(
    shape: tuple[int, ...], text: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        validate(request({"A": Tensor(FP32, shape, b"")}), model(spec("A", (-1, -1))))
    assert caught.value.message == text
