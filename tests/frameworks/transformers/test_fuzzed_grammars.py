"""Grammars that failed once, and those with which the search begins, are compiled or refused as they should be."""

import pytest

from tests.fuzz.targets import TARGETS, check, recorded

GRAMMARS = TARGETS["grammars"]


def test_seeds_are_compiled() -> None:
    for seed in GRAMMARS.seeds:
        GRAMMARS.run(seed)
        for end in range(0, len(seed), 5):
            check(GRAMMARS, seed[:end])


@pytest.mark.parametrize("data", [path.read_bytes() for path in recorded("grammars")] or [b""])
def test_grammar_that_failed_once_does_not_fail_again(data: bytes) -> None:
    check(GRAMMARS, data)
