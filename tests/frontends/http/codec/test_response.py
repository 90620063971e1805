from typing import Any

import numpy as np
import orjson
import pytest

from halimede.config.signature import Signature
from halimede.core.datatypes import BYTES, FP16, FP32, INT8, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferResponse, RepeatingResponse
from halimede.core.tensors import Tensor
from halimede.frontends.http.codec.request_plan import OutputPlan, RequestPlan
from halimede.frontends.http.codec.response import Encoded, encode_response, encode_whole
from halimede.frontends.shared_memory.requests import PlacedTensor


class FakeModel:
    """What the codec needs of a model."""

    name = "m"

    def __init__(self, version: int = 3, max_batch_size: int = 8) -> None:
        self.version = version
        self.signature = Signature(max_batch_size, {}, {}, decoupled=False)

    labels = {"OUT": ["cat", "dog"]}  # noqa: RUF012 - never changed


def plan(default_binary: bool = False, **outputs: OutputPlan) -> RequestPlan:
    made = RequestPlan()
    made.unlisted = OutputPlan(default_binary)
    made.output_plans = outputs
    made.outputs = tuple(outputs)
    return made


def out(values: Any = ((1, 2),), datatype: Any = FP32) -> Tensor:
    return Tensor.from_array(datatype, np.array(values, dtype=datatype.numpy))


def encode(
    outputs: dict[str, Tensor],
    wanted: RequestPlan,
    identifier: str = "",
    model: FakeModel | None = None,
    **parameters: Any,
) -> tuple[Any, bytes, Encoded]:
    """The JSON, the bytes after it, and all of it."""
    response = InferResponse(outputs, parameters)
    encoded = encode_whole(encode_response(response, model or FakeModel(), wanted, identifier))  # type: ignore[arg-type]  # a fake
    head, *rest = encoded[0]
    return orjson.loads(head), b"".join(rest), encoded


def test_outputs_are_json_unless_asked_otherwise() -> None:
    document, data, encoded = encode({"OUT": out()}, plan())
    assert document == {
        "model_name": "m",
        "model_version": "3",
        "outputs": [{"name": "OUT", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}],
    }
    assert (data, *encoded[1:]) == (b"", "application/json", ())


def test_binary_outputs_follow_the_json_in_order() -> None:
    outputs = {"A": out(), "B": out([[7]], INT8)}
    document, data, encoded = encode(outputs, plan(default_binary=True), "x")
    assert list(document) == ["id", "model_name", "model_version", "outputs"]
    assert document["id"] == "x"
    assert document["outputs"] == [
        {"name": "A", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}},
        {"name": "B", "datatype": "INT8", "shape": [1, 1], "parameters": {"binary_data_size": 1}},
    ]
    assert data == np.array([1, 2], "<f4").tobytes() + b"\7"
    headers = (("Inference-Header-Content-Length", str(len(encoded[0][0]))),)
    assert encoded[1:] == ("application/octet-stream", headers)


def test_binary_outputs_are_not_copied() -> None:
    tensor = out()
    _, _, encoded = encode({"A": tensor}, plan(default_binary=True))
    assert np.shares_memory(np.frombuffer(encoded[0][1], np.uint8), tensor.array)


def test_listed_outputs_ignore_the_default() -> None:
    wanted = plan(default_binary=True, A=OutputPlan(binary=False), B=OutputPlan(binary=True))
    document, data, _ = encode({"A": out(), "B": out(), "C": out()}, wanted)
    assert document["outputs"][0]["data"] == [1.0, 2.0]
    assert document["outputs"][1]["parameters"] == {"binary_data_size": 8}
    assert len(document["outputs"]) == 2
    assert len(data) == 8


@pytest.mark.parametrize("datatype", [FP32, FP16, BYTES])
def test_empty_output_has_zero_bytes(datatype: Datatype) -> None:
    empty = Tensor(datatype, (1, 0), b"")
    document, data, encoded = encode({"A": empty}, plan(default_binary=True))
    assert document["outputs"] == [
        {"name": "A", "datatype": datatype.name, "shape": [1, 0], "parameters": {"binary_data_size": 0}}
    ]
    assert (data, encoded[1:]) == (b"", ("application/json", ()))


def test_empty_output_stands_between_others() -> None:
    document, data, encoded = encode({"A": Tensor(FP32, (0,), b""), "B": out()}, plan(default_binary=True))
    sizes = [output["parameters"]["binary_data_size"] for output in document["outputs"]]
    assert sizes == [0, len(data)]
    assert encoded[1] == "application/octet-stream"


def test_tensors_of_one_name_all_come() -> None:
    first, second = out([1.0]), out([2.0])
    response = RepeatingResponse([("A", first), ("B", out([3.0])), ("A", second)])
    for wanted in (plan(default_binary=True), plan(A=OutputPlan(binary=True), B=OutputPlan(binary=True))):
        for _ in range(2):  # the second time, the plan knows what the last response looked like
            encoded = encode_whole(encode_response(response, FakeModel(), wanted, ""))  # type: ignore[arg-type]
            document = orjson.loads(encoded[0][0])
            assert [output["name"] for output in document["outputs"]] == ["A", "B", "A"]
            assert b"".join(encoded[0][1:]) == np.array([1, 3, 2], "<f4").tobytes()


def test_large_json_is_made_in_steps_and_says_where_the_bytes_begin() -> None:
    many = np.arange(150_000, dtype=np.float32)
    outputs = {
        "A": out([1.0]),
        "B": Tensor.from_array(FP32, many),
        "C": out([2.0]),
        "D": Tensor.from_array(FP32, many),
    }
    binary = plan(A=OutputPlan(False), B=OutputPlan(False), C=OutputPlan(True), D=OutputPlan(False))
    steps = encode_response(InferResponse(outputs, {"p": 1}), FakeModel(), binary, 'a"b')  # type: ignore[arg-type]
    assert not isinstance(steps, tuple)
    for _ in range(6):
        next(steps)
    parts, content_type, headers = encode_whole(steps)
    body = b"".join(parts)
    length = int(dict(headers)["Inference-Header-Content-Length"])
    document = orjson.loads(body[:length])
    assert [each.pop("data", None) for each in document["outputs"]] == [
        [1.0],
        many.tolist(),
        None,
        many.tolist(),
    ]
    assert document.pop("outputs")[2] == {
        "name": "C", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4},
    }  # fmt: skip
    assert document == {"id": 'a"b', "model_name": "m", "model_version": "3", "parameters": {"p": 1}}
    assert (content_type, body[length:]) == ("application/octet-stream", np.float32(2).tobytes())


def test_strings_come_with_their_lengths() -> None:
    _, data, _ = encode({"A": out([b"ab", b""], BYTES)}, plan(default_binary=True))
    assert data == b"\2\0\0\0ab\0\0\0\0"


def test_response_parameters_are_told() -> None:
    document, _, _ = encode({"A": out()}, plan(default_binary=True), "", a=1, b="x")
    assert list(document) == ["model_name", "model_version", "parameters", "outputs"]
    assert document["parameters"] == {"a": 1, "b": "x"}


def test_classes_come_instead_of_values() -> None:
    document, _, _ = encode({"OUT": out()}, plan(OUT=OutputPlan(binary=False, classes=2)))
    assert document["outputs"] == [
        {"name": "OUT", "datatype": "BYTES", "shape": [1, 2], "data": ["2.000000:1:dog", "1.000000:0:cat"]}
    ]


@pytest.mark.parametrize(("max_batch_size", "shape"), [(0, [2]), (1, [2, 1]), (8, [2, 1])])
def test_rows_of_a_batch_are_classified_apart(max_batch_size: int, shape: list[int]) -> None:
    wanted = plan(OUT=OutputPlan(binary=False, classes=1 if max_batch_size else 2))
    values = [[1], [2]] if max_batch_size else [1, 2]
    document, _, _ = encode({"OUT": out(values)}, wanted, model=FakeModel(max_batch_size=max_batch_size))
    assert document["outputs"][0]["shape"] == shape


def test_half_precision_needs_binary_data() -> None:
    with pytest.raises(InvalidArgumentError, match="sending FP16 data via JSON is not supported"):
        encode({"A": out(datatype=FP16)}, plan())
    assert len(encode({"A": out(datatype=FP16)}, plan(default_binary=True))[1]) == 4


def test_shapes_are_remembered_apart() -> None:
    for size in (1, 2, 1):
        document, _, _ = encode({"A": out([[1] * size])}, plan(default_binary=True))
        assert document["outputs"][0]["shape"] == [1, size]


@pytest.mark.parametrize("tensor", [out(), PlacedTensor(out())])
def test_json_of_a_response_that_differs_in_bytes_only_is_not_written_again(tensor: Tensor) -> None:
    wanted = plan(A=OutputPlan(binary=not isinstance(tensor, PlacedTensor), placed=True))
    heads = [encode({"A": tensor}, wanted)[2][0][0] for _ in range(2)]
    assert heads[0] is heads[1]


@pytest.mark.parametrize("before", [{"identifier": "x"}, {"a": 1}, {"model": FakeModel(4)}])
def test_nothing_of_the_last_response_to_the_same_request_comes_again(before: dict[str, Any]) -> None:
    alone, _, _ = encode({"A": out()}, plan(default_binary=True))
    wanted = plan(default_binary=True)
    other, _, _ = encode({"A": out()}, wanted, **before)
    assert other != alone
    assert encode({"A": out()}, wanted)[0] == alone
    assert encode({"A": out()}, wanted, **before)[0] == other


def test_responses_with_more_or_fewer_outputs_are_told_apart() -> None:
    wanted = plan(default_binary=True)
    for names in ("A", "AB", "A"):
        document, data, _ = encode(dict.fromkeys(names, out()), wanted)
        assert [output["name"] for output in document["outputs"]] == list(names)
        assert len(data) == 8 * len(names)


def test_output_in_a_region_is_described_as_it_is_each_time() -> None:
    wanted = plan(OUT=OutputPlan(binary=False, placed=True))
    for values, datatype in (([[1, 2]], FP32), ([[3, 4]], FP32), ([[5]], FP32), ([[6]], INT8), ([[7]], INT8)):
        document, data, encoded = encode({"OUT": PlacedTensor(out(values, datatype))}, wanted)
        shape = [1, len(values[0])]
        assert document["outputs"] == [{"name": "OUT", "datatype": datatype.name, "shape": shape}]
        assert (data, *encoded[1:]) == (b"", "application/json", ())


def test_output_in_a_region_stands_beside_one_that_is_not() -> None:
    wanted = plan(A=OutputPlan(binary=False, placed=True), B=OutputPlan(binary=True))
    for values in ([[1]], [[2]], [[3, 4]]):
        document, data, encoded = encode({"A": PlacedTensor(out()), "B": out(values)}, wanted)
        assert [output["name"] for output in document["outputs"]] == ["A", "B"]
        assert "parameters" not in document["outputs"][0]
        assert data == np.array(values, np.float32).tobytes()
        assert encoded[1] == "application/octet-stream"


def test_many_classes_are_found_in_steps() -> None:
    outputs = {"A": out([[1.0]]), "B": out(np.arange(10_000).reshape(10, 1000)), "C": out([[2.0]])}
    wanted = plan(A=OutputPlan(False), B=OutputPlan(False, classes=1000), C=OutputPlan(False, classes=1))
    steps = encode_response(InferResponse(outputs), FakeModel(), wanted, "1")  # type: ignore[arg-type]
    assert not isinstance(steps, tuple)
    for _ in range(4):
        next(steps)
    document = orjson.loads(b"".join(encode_whole(steps)[0]))
    first, classes, last = document["outputs"]
    assert document["id"] == "1"
    assert (first["data"], last["data"]) == ([1.0], ["2.000000:0"])
    assert (classes["datatype"], classes["shape"]) == ("BYTES", [10, 1000])
    assert classes["data"][:2] == ["999.000000:999", "998.000000:998"]
    assert classes["data"][-1] == "9000.000000:0"
