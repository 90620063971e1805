"""What errors say of names that do not exist."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.hints import names_hint


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("INPUT", ["INPUT0", "MASK"], ". Did you mean 'INPUT0'? The inputs are: INPUT0, MASK"),
        ("input0", ["INPUT0", "MASK"], ". Did you mean 'INPUT0'? The inputs are: INPUT0, MASK"),
        ("xyz", ["B", "A"], ". The inputs are: A, B"),
        ("xyz", [], ""),
        ("x" * 10_000, ["y" * 1000], f". The inputs are: {'y' * 100}…"),
    ],
)
def test_the_nearest_name_and_all_are_told(name: str, known: list[str], hint: str) -> None:
    assert names_hint(name, known, "inputs") == hint


def test_many_names_are_cut_short_but_the_nearest_is_found() -> None:
    known = [f"model_{number}" for number in range(900)]
    hint = names_hint("modle_77", known, "loaded models")
    assert hint.startswith(". Did you mean 'model_77'? The loaded models are: model_0, model_1, ")
    assert hint.endswith(" and 890 more")


@given(st.text(), st.lists(st.text()))
def test_a_hint_is_short_whatever_the_names(name: str, known: list[str]) -> None:
    assert len(names_hint(name, known, "inputs")) < 2000
