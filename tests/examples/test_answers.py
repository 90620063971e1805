"""Answers that the walk-throughs hold against the framework's."""

import numpy as np
import pytest

from examples.answers import difference, tensor

EXPECTED = np.array([1, -200], np.float32)


def test_largest_difference_counts() -> None:
    assert difference(EXPECTED + np.array([0.001, -0.01], np.float32), EXPECTED) == pytest.approx(
        0.01, rel=1e-2
    )


@pytest.mark.parametrize("wrong", [0.03, np.nan, np.inf])
def test_answer_that_is_too_far_off_ends_the_client(wrong: float) -> None:
    with pytest.raises(
        SystemExit, match=r"wrong answer: it is \S+ from the framework's, and 2.0e-02 is allowed"
    ):
        difference(EXPECTED + np.float32(wrong), EXPECTED)


def test_answer_of_another_shape_ends_the_client() -> None:
    with pytest.raises(SystemExit, match=r"shape \(1, 2\), and the framework gives \(2,\)"):
        difference(EXPECTED[None], EXPECTED)


def test_tolerance_can_be_given() -> None:
    assert difference(EXPECTED + np.float32(1), EXPECTED, tolerance=0.1) == pytest.approx(1)


def test_input_has_the_datatype_of_its_array() -> None:
    one = tensor("x", np.zeros((2, 3), np.int64))
    assert (one.name(), one.datatype(), tuple(one.shape())) == ("x", "INT64", (2, 3))
