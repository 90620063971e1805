"""Conversions of arguments: what native code of the original would take."""

import enum
from collections import UserDict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from halimede_worker.arguments import INT64, UINT32, UINT64, Signature

CALL = Signature.function("call(argument: Any)")


class Colour(enum.IntEnum):
    RED = 1


class Index:
    def __index__(self) -> int:
        return 7


class Items:
    def __getitem__(self, position: int) -> str:
        return ("a", "b")[position]

    def __len__(self) -> int:
        return 2


class MyText(str):
    __slots__ = ()


def generated() -> Iterator[str]:
    yield "a"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("m", "m"),
        (b"m", "m"),
        (bytearray(b"m"), "m"),
        ("é".encode(), "é"),
        (np.str_("m"), "m"),
        (np.bytes_(b"m"), "m"),
        (MyText("m"), "m"),
        ("", ""),
    ],
)
def test_text_may_be_str_or_utf8_bytes(value: object, text: str) -> None:
    result = CALL.text("argument", value)
    assert result == text
    assert type(result) is str


@pytest.mark.parametrize("value", [None, 1, 1.5, ["m"], np.array(["m"]), object(), b"\xff", "\ud800"])
def test_text_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(
        TypeError, match=r"^call\(\): incompatible function arguments\. The following argument"
    ):
        CALL.text("argument", value)


@pytest.mark.parametrize("value", [7, True, Index(), np.int8(7), np.uint64(7), Colour.RED])
def test_whole_number_is_whatever_can_be_an_index(value: Any) -> None:
    result = CALL.whole("argument", value, UINT32)
    assert result == value.__index__()
    assert type(result) is int


@pytest.mark.parametrize("value", [None, 1.0, np.float32(1), "1", b"1", [1]])
def test_whole_number_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="argument must be int, got <class"):
        CALL.whole("argument", value, UINT32)


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        (-1, UINT32),
        (1 << 32, UINT32),
        (-1, UINT64),
        (1 << 64, UINT64),
        (1 << 63, INT64),
        (-(1 << 63) - 1, INT64),
    ],
)
def test_whole_number_out_of_range_is_refused(value: int, bounds: tuple[int, int]) -> None:
    with pytest.raises(TypeError, match=f"argument must be from {bounds[0]} to {bounds[1]}, got {value}"):
        CALL.whole("argument", value, bounds)


@pytest.mark.parametrize("bounds", [UINT32, UINT64, INT64])
def test_bounds_are_in_range(bounds: tuple[int, int]) -> None:
    assert [CALL.whole("argument", bound, bounds) for bound in bounds] == list(bounds)


@pytest.mark.parametrize("value", [1, 1.5, True, np.float32(1.5), np.int64(3), float("inf")])
def test_number_may_be_whole_or_not(value: Any) -> None:
    assert CALL.number("argument", value) == float(value)


@pytest.mark.parametrize("value", [None, "1.5", b"1.5", 1j, [1.5], 10**400])
def test_number_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="argument must be float, got <class"):
        CALL.number("argument", value)


@pytest.mark.parametrize(
    ("value", "truth"), [(True, True), (False, False), (np.True_, True), (1, True), (0, False)]
)
def test_truth_is_what_says_so_itself(value: object, truth: bool) -> None:
    assert CALL.truth("argument", value) is truth


@pytest.mark.parametrize("value", ["True", "", b"x", [], {}])
def test_truth_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="argument must be bool, got <class"):
        CALL.truth("argument", value)


def test_member_of_an_enumeration_is_none_but_its_members() -> None:
    assert CALL.instance("argument", Colour.RED, Colour) is Colour.RED
    for value in (1, "RED", None):
        with pytest.raises(TypeError, match="argument must be Colour, got <class"):
            CALL.instance("argument", value, Colour)


@pytest.mark.parametrize(
    "value", [["a", b"b"], ("a", "b"), deque(["a", "b"]), Items(), np.array(["a", "b"], np.object_)]
)
def test_list_may_be_any_sequence(value: object) -> None:
    assert CALL.texts("argument", value) == ["a", "b"]


@pytest.mark.parametrize("value", [None, {"a": 1}, UserDict(a=1), {"a"}, generated(), "ab", b"ab", 5])
def test_list_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="argument must be a sequence, got <class"):
        CALL.sequence("argument", value)


def test_list_is_not_the_one_that_was_given() -> None:
    given = ["a"]
    assert CALL.sequence("argument", given) is not given


def test_items_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="argument's items must be str, got <class 'int'>"):
        CALL.texts("argument", ["a", 5])
    with pytest.raises(TypeError, match="argument's items must be str, got <class 'NoneType'>"):
        CALL.texts("argument", ["a", None])
    with pytest.raises(TypeError, match="argument's items must be Index, got <class 'str'>"):
        CALL.instances("argument", [Index(), "a"], Index)


def test_objects_in_a_list_may_be_none() -> None:
    index = Index()
    assert CALL.instances("argument", (index, None), Index) == [index, None]
