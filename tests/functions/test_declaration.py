import re

import pytest

from halimede.functions.declaration import DeclarationError, ModelOptions, model, options_of


def test_a_declared_function_stays_what_it_is() -> None:
    @model(batch=32, delay_us=100, instances=2)
    def double(x: list[float]) -> list[float]:
        return [each * 2 for each in x]

    assert double([1.0]) == [2.0]
    assert options_of(double) == ModelOptions(batch=32, delay_us=100, instances=2)


def test_the_decorator_needs_no_arguments() -> None:
    @model
    def same(x: float) -> float:
        return x

    assert same(1.5) == 1.5
    assert options_of(same) == ModelOptions()


def test_a_function_without_the_decorator_has_the_defaults() -> None:
    def same(x: float) -> float:
        return x

    assert options_of(same) == ModelOptions()


def test_a_class_does_not_inherit_what_its_base_declares() -> None:
    @model(name="base", instances=3)
    class Base:
        pass

    class Derived(Base):
        pass

    assert options_of(Base).instances == 3
    assert options_of(Derived) == ModelOptions()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"batch": -1}, "model(batch=-1): it must be a whole number, at least 0"),
        ({"batch": 2.5}, "model(batch=2.5): it must be a whole number, at least 0"),
        ({"instances": 0}, "model(instances=0): it must be a whole number, at least 1"),
        ({"concurrency": 5000}, "model(concurrency=5000): it must be at most 1024"),
        ({"delay_us": 5}, "model(delay_us=5): requests wait for each other only in batches; add batch=32"),
        ({"isolation": "thread"}, "model(isolation='thread'): it must be 'process' or 'none'"),
    ],
)
def test_a_value_out_of_range_is_told_with_what_would_be_right(
    arguments: dict[str, int | float | str], text: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(text)):
        model(**arguments)  # type: ignore[call-overload]
