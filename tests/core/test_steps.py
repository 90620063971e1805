import pytest

from halimede.core.steps import step, watched_by
from tests.support.steps import SeenSteps


def test_whoever_watches_is_told_of_steps() -> None:
    seen = SeenSteps()
    with step("before", 1):
        pass
    with watched_by(seen), step("fetching", 10) as fetching:
        fetching.advance(3)
        fetching.advance(4)
        assert seen.ended_steps == []
    with step("after", 1):
        pass
    assert seen.ended_steps == [("fetching", 7, 10)]


def test_a_step_that_fails_has_ended() -> None:
    seen = SeenSteps()
    with pytest.raises(ValueError, match="no"), watched_by(seen), step("fetching"):
        raise ValueError("no")
    assert seen.ended_steps == [("fetching", 0, None)]
