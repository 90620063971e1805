import pytest

from halimede.core.memo import Memo


def test_result_is_made_once() -> None:
    made: list[int] = []

    def double(number: int) -> int:
        made.append(number)
        return number * 2

    remembered = Memo(double)
    assert [remembered[number] for number in (1, 2, 1)] == [2, 4, 2]
    assert made == [1, 2]


def test_no_more_than_the_limit_is_held() -> None:
    remembered = Memo(str, limit=3)
    for number in range(10):
        assert remembered[number] == str(number)
        assert len(remembered) <= 3


def test_failure_is_not_remembered() -> None:
    remembered = Memo(int)
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            remembered["x"]
