"""Which answers count as alike."""

from math import nan

import pytest

from tests.conformance.compare import ABSENT, Line, alike, differing, goes_on


def test_answers_with_the_same_values_are_alike() -> None:
    assert differing({"status": 200, "body.x": 1.5}, {"body.x": 1.5, "status": 200}) == []


def test_each_value_that_differs_is_a_line() -> None:
    lines = differing({"status": 200, "body.x": 1}, {"status": 400, "body.x": 1})
    assert lines == [Line("status", 200, 400)]


def test_a_value_on_one_side_only_is_a_line_with_absent_on_the_other() -> None:
    assert differing({"a": 1}, {"b": 2}) == [Line("a", 1, ABSENT), Line("b", ABSENT, 2)]


@pytest.mark.parametrize(
    ("theirs", "ours"), [(1, 1.0), (1, True), (0.1, 0.10000000149011612), (0.0, -0.0), ("1", 1)]
)
def test_numbers_are_compared_by_type_and_to_the_last_digit(theirs: float | str, ours: float) -> None:
    assert not alike(Line("body.x", theirs, ours))


def test_not_a_number_is_like_itself() -> None:
    assert alike(Line("body.x", nan, nan))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("not found", "not found"),
        ("failed to poll", "failed to poll: line 3 has no colon"),
        ("is wrong", "is wrong. Use another"),
        ("is wrong", "is wrong (in step 0)"),
        ("is wrong.", "is wrong. Use another"),
        ("Internal: broken;\n", "Internal: broken: no such file;\n"),
        ("the GPUs are: ", "the GPUs are: none, as there is none"),
        ("At:\n  model.py(3)\n", "At:\n  model.py(3)\n (in step 0)"),
    ],
)
def test_an_error_may_go_on_after_the_original_text(theirs: str, ours: str) -> None:
    assert goes_on(theirs, ours)
    assert alike(Line("body.error", theirs, ours))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("not found", "was not found"),
        ("model 'm'", "model 'm2'"),
        ("got 1", "got 12"),
        ("is wrong. Use another", "is wrong"),
        ("Internal: broken;\n", "Internal: broken"),
        ("Internal: broken;\n", "Internal: broken again;\n"),
    ],
)
def test_an_error_that_says_something_else_differs(theirs: str, ours: str) -> None:
    assert not goes_on(theirs, ours)


def test_only_errors_may_go_on() -> None:
    assert not alike(Line("body.outputs[0].data[0]", "text", "text: more"))


@pytest.mark.parametrize(
    "path",
    [
        "body.error",
        "step 2: body.error",
        "details",
        "responses[0].error_message",
        "step 3: m 1.reason",
        "event[1].error",
    ],
)
def test_errors_are_known_by_their_path(path: str) -> None:
    assert alike(Line(path, "wrong", "wrong: because"))
