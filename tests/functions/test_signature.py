import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt
import pytest
from typing_extensions import TypeAliasType

from halimede.core.datatypes import BOOL, BYTES, FP32, FP64, INT64, UINT8, Datatype
from halimede.functions.declaration import DeclarationError, ModelOptions, Tensor
from halimede.functions.signature import Fields, Form, Value, read_signature

Batch = Annotated[npt.NDArray[np.float32], Tensor("FP32", [-1, 4])]


# As a `type` statement of Python 3.12 makes them.
Row = TypeAliasType("Row", list[float])
Vector = TypeAliasType("Vector", npt.NDArray[np.float32])
SameVector = TypeAliasType("SameVector", Vector)


class Named(NamedTuple):
    label: str
    score: float


class Keyed(TypedDict):
    label: str
    scores: list[float]


@dataclass
class Record:
    label: str
    image: Annotated[npt.NDArray[np.uint8], Tensor(np.uint8, [8, 8])]


def with_input(annotation: Any) -> Callable[..., Any]:
    def function(x: Any) -> float:
        raise NotImplementedError

    function.__annotations__["x"] = annotation
    return function


def with_output(annotation: Any) -> Callable[..., Any]:
    def function(x: float) -> Any:
        raise NotImplementedError

    function.__annotations__["return"] = annotation
    return function


@pytest.mark.parametrize(
    ("annotation", "datatype", "shape", "form"),
    [
        (float, FP64, (), Form.SCALAR),
        (int, INT64, (), Form.SCALAR),
        (bool, BOOL, (), Form.SCALAR),
        (str, BYTES, (), Form.SCALAR),
        (bytes, BYTES, (), Form.SCALAR),
        (np.float32, FP32, (), Form.SCALAR),
        (list[float], FP64, (-1,), Form.LIST),
        (list[list[int]], INT64, (-1, -1), Form.LIST),
        (list[str], BYTES, (-1,), Form.LIST),
        (Row, FP64, (-1,), Form.LIST),
        (list[Row], FP64, (-1, -1), Form.LIST),
        (SameVector, FP32, (-1,), Form.ARRAY),
        (Annotated[Row, Tensor("FP32", [3])], FP32, (3,), Form.LIST),
        (npt.NDArray[np.float32], FP32, (-1,), Form.ARRAY),
        (npt.NDArray[np.str_], BYTES, (-1,), Form.ARRAY),
        (np.ndarray[tuple[int, int], np.dtype[np.uint8]], UINT8, (-1, -1), Form.ARRAY),
        (Annotated[np.ndarray, Tensor("FP32", [-1, 4])], FP32, (-1, 4), Form.ARRAY),
        (Annotated[np.ndarray, Tensor(np.uint8, (8, 8))], UINT8, (8, 8), Form.ARRAY),
        (Annotated[list[float], Tensor("FP32", [3])], FP32, (3,), Form.LIST),
    ],
)
def test_an_annotation_says_datatype_and_shape(
    annotation: Any, datatype: Datatype, shape: tuple[int, ...], form: Form
) -> None:
    (value,) = read_signature(with_input(annotation), ModelOptions()).inputs
    assert (value.name, value.datatype, value.shape, value.form) == ("x", datatype, shape, form)
    assert value.text == (annotation in (str, list[str]))
    (output,) = read_signature(with_output(annotation), ModelOptions()).outputs
    assert (output.name, output.datatype, output.shape) == ("output", datatype, shape)


@pytest.mark.parametrize(
    ("annotation", "fields", "names"),
    [
        (tuple[str, float], Fields.ITEMS, ["output_0", "output_1"]),
        (Named, Fields.ITEMS, ["label", "score"]),
        (Keyed, Fields.KEYS, ["label", "scores"]),
        (Record, Fields.ATTRIBUTES, ["label", "image"]),
    ],
)
def test_several_outputs_have_names(annotation: Any, fields: Fields, names: list[str]) -> None:
    signature = read_signature(with_output(annotation), ModelOptions())
    assert signature.fields is fields
    assert [each.name for each in signature.outputs] == names


def test_a_default_makes_an_input_optional() -> None:
    def function(x: float, times: int | None = None) -> float:
        raise NotImplementedError

    signature = read_signature(function, ModelOptions())
    assert signature.inputs[1] == Value("times", INT64, (), Form.SCALAR, optional=True)


def test_a_class_is_called() -> None:
    class Model:
        def __call__(self, x: float) -> str:
            raise NotImplementedError

    signature = read_signature(Model, ModelOptions())
    assert signature.is_class
    assert [each.name for each in signature.inputs] == ["x"]


def test_generators_stream() -> None:
    def words(text: str) -> Iterator[str]:
        yield text

    async def more(text: str) -> AsyncIterator[str]:
        yield text

    signature = read_signature(words, ModelOptions())
    assert signature.streams
    assert not signature.asynchronous
    assert signature.outputs[0].datatype is BYTES
    signature = read_signature(more, ModelOptions())
    assert signature.streams
    assert signature.asynchronous


def no_annotation(x) -> float:  # type: ignore[no-untyped-def] # noqa: ANN001
    raise NotImplementedError


def no_result(x: float):  # type: ignore[no-untyped-def] # noqa: ANN201
    raise NotImplementedError


def nothing() -> float:
    raise NotImplementedError


def any_number(*x: float) -> float:
    raise NotImplementedError


def streaming(x: float) -> Iterator[float]:
    yield x


def defaulted(x: list[float], y: float = 1.0) -> list[float]:
    raise NotImplementedError


class NotCallable:
    pass


@pytest.mark.parametrize(
    ("target", "batch", "text"),
    [
        (no_annotation, 0, "parameter 'x' of 'no_annotation' has no annotation; write for instance float"),
        (no_result, 0, "the result of 'no_result' has no annotation; write -> and for instance float"),
        (nothing, 0, "'nothing' takes nothing; a model has at least one input"),
        (any_number, 0, "parameter 'x' of 'any_number' stands for any number of arguments"),
        (streaming, 8, "'streaming' streams its answers, which a function with batch=8 cannot"),
        (defaulted, 8, "parameter 'y' of 'defaulted' has a default"),
        (NotCallable, 0, "class 'NotCallable' has no method __call__"),
        (3, 0, "3 is not written in Python, so that it has no annotations; serve a function that calls it"),
        (with_input(np.ndarray), 0, "is an array of which neither datatype nor shape are known; write Annotated"),
        (with_input(dict), 0, "is annotated as dict, which is no tensor"),
        (with_input(Annotated[np.ndarray, Tensor("FP31")]), 0, "'FP31' is no datatype; it must be one of BOOL"),
        (with_input(Annotated[np.ndarray, Tensor(np.complex64)]), 0, "arrays of complex64 cannot be sent"),
        (with_input(Annotated[np.ndarray, Tensor("FP32", [0])]), 0, "the shape must be a list of sizes"),
        (with_input(Annotated[np.ndarray, Tensor("FP32", [4])]), 8, "its first size is that of the batch: write -1"),
        (with_input(float), 8, "is a single value, and with batch=8 the function gets a batch of them: write list"),
        (with_output(Iterator[float]), 0, "is annotated as an iterator, but the function does not `yield`"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_told_with_what_would_be_right(target: Any, batch: int, text: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(text)):
        read_signature(target, ModelOptions(batch=batch))
