import re
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from halimede.functions.conversion import ResultError, argument, outputs
from halimede.functions.declaration import ModelOptions, Tensor
from halimede.functions.signature import read_signature


class Answer(NamedTuple):
    label: str
    scores: Annotated[npt.NDArray[np.float32], Tensor("FP32", [3])]


def answer(x: float) -> Answer:
    raise NotImplementedError


def rows(x: list[float]) -> list[float]:
    raise NotImplementedError


def texts(text: str, many: list[list[str]], raw: bytes) -> list[str]:
    raise NotImplementedError


def strings(*values: bytes) -> npt.NDArray[Any]:
    return np.array(values, np.object_)


def test_text_is_decoded_and_bytes_are_not() -> None:
    text, many, raw = read_signature(texts, ModelOptions()).inputs
    assert argument(text, strings("é".encode())) == "é"
    assert argument(many, strings(b"a", b"b").reshape(2, 1)) == [["a"], ["b"]]
    assert argument(raw, strings(b"\xff")) == b"\xff"
    with pytest.raises(ValueError, match="input 'text' must be text in UTF-8"):
        argument(text, strings(b"\xff"))


def test_outputs_get_the_declared_datatype() -> None:
    label, scores = outputs(read_signature(answer, ModelOptions()), ("é", [0.5, 1, 2]))
    assert label.tolist() == ["é".encode()]
    assert scores.dtype == np.float32
    assert scores.tolist() == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("one", "the function must return a tuple of 2 values; it returned 'one'"),
        (("a", [1.0, 2.0]), "output 'scores' must have the shape [3]; it has [2]"),
        (("a", [1.0, 2.0, "x"]), "output 'scores' must be FP32; it is <U32"),
        ((5, [1.0, 2.0, 3.0]), "output 'label' must be str or bytes; it is 5"),
        ((["a", "b"], [1.0, 2.0, 3.0]), "output 'label' must be one value; it has 2"),
    ],
)
def test_a_result_that_is_not_as_declared_is_told(result: Any, text: str) -> None:
    with pytest.raises(ResultError, match=re.escape(text)):
        outputs(read_signature(answer, ModelOptions()), result)


def test_a_batch_has_a_row_for_each_row() -> None:
    signature = read_signature(rows, ModelOptions(batch=4))
    assert outputs(signature, [1.0, 2.0], 2)[0].tolist() == [1.0, 2.0]
    with pytest.raises(
        ResultError, match="'output' must have a row for each of the 3 of the batch; it has 2"
    ):
        outputs(signature, [1.0, 2.0], 3)
