import re

import pytest

from halimede.core.memory import memory_limit
from halimede.engine.memory.budget import budget_bytes, human, parse_budget


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("1073741824", 1 << 30),
        ("1", 1),
        ("500MB", 500_000_000),
        ("2GiB", 2 << 30),
        ("1.5 GiB", 3 << 29),
        (" 64KiB ", 65536),
        ("12B", 12),
    ],
)
def test_a_budget_is_a_number_of_bytes(text: str, budget: int) -> None:
    parsed = parse_budget(text)
    assert parsed == budget
    assert isinstance(parsed, int)
    assert budget_bytes(parsed) == budget


@pytest.mark.parametrize(("text", "share"), [("80%", 0.8), ("100%", 1.0), ("0.25", 0.25), ("1.0", 1.0)])
def test_a_budget_is_a_share_of_the_memory_that_the_server_may_use(text: str, share: float) -> None:
    parsed = parse_budget(text)
    assert parsed == share
    assert budget_bytes(parsed) == int(share * memory_limit())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("lots", "'lots' is not a budget; it must be a number of bytes (2GiB, 500MB, 1073741824) or a share"),
        ("-5", "'-5' is not a budget"),
        ("", "'' is not a budget"),
        ("2Gi", "'2Gi' has the unit 'Gi', which is none of B, KB"),
        ("120%", "'120%' is out of range; a share must be above 0 and at most 100% or 1.0"),
        ("0%", "'0%' is out of range"),
        ("1.5", "'1.5' is out of range"),
        ("0", "'0' leaves no memory"),
        ("0.1B", "'0.1B' leaves no memory"),
    ],
)
def test_other_budgets_are_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)) as caught:
        parse_budget(text)
    assert str(caught.value).startswith(error)  # and does not only contain it


def test_a_share_of_what_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halimede.engine.memory.budget.memory_limit", lambda: 0)
    with pytest.raises(ValueError, match="give the budget in bytes"):
        budget_bytes(0.5)


def test_sizes_are_told_for_people() -> None:
    assert [human(size) for size in (0, 1023, 1536, 5 << 20, 3 << 29, 3 << 40)] == [
        "0 bytes", "1023 bytes", "1.5 KiB", "5.0 MiB", "1.5 GiB", "3.0 TiB",
    ]  # fmt: skip
