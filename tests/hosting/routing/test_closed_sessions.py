"""Closed sessions are known until they would have expired, to the next process too, and take bounded room."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from halimede.hosting.routing import closed_sessions as module
from halimede.hosting.routing.closed_sessions import ClosedSessions
from tests.hosting.routing.serving import one_process

pytestmark = one_process

NOW = 100.0


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_MOST", 10)
    return tmp_path / "closed"


@contextmanager
def opened(path: Path, now: float = NOW) -> Iterator[ClosedSessions]:
    """What a process that begins at a time knows."""
    sessions = ClosedSessions(lambda: now)
    sessions.open(path)
    yield sessions
    sessions.close()


def test_expired_sessions_make_room_first(path: Path) -> None:
    with opened(path) as sessions:
        for number in range(8):
            sessions.add(f"old-{number}", 50)
        for name in "abc":
            sessions.add(name, 200)
        assert list(sessions.all()) == ["a", "b", "c"]


def test_what_was_closed_first_is_forgotten_when_there_are_too_many(path: Path) -> None:
    with opened(path) as sessions:
        for name in "abcdefghijk":
            sessions.add(name, 200)
        assert "".join(sessions.all()) == "bcdefghijk"
        assert "a" not in sessions
        assert "k" in sessions


def test_the_next_process_knows_those_that_have_not_expired(path: Path) -> None:
    with opened(path) as sessions:
        sessions.add("short", 150)
        sessions.add("long", 300)
        with opened(path, now=200) as following:  # the first one has ended without a word
            assert following.all() == {"long": 300}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_is_cut_off_or_damaged_is_passed_over(path: Path) -> None:
    path.write_bytes(b"200 a\n\xff\xfe\nno number\n200 b\n20")
    with opened(path) as sessions:
        assert sessions.all() == {"a": 200, "b": 200}
        sessions.add("c", 200)
    with opened(path) as following:
        assert following.all() == {"a": 200, "b": 200, "c": 200}


def test_the_file_is_written_anew_before_it_grows_without_bounds(path: Path) -> None:
    with opened(path) as sessions:
        for number in range(200):
            sessions.add(f"s-{number}", 200)
        assert len(path.read_text().splitlines()) <= 21
        known = list(sessions.all())
    with opened(path) as following:
        assert list(following.all())[-len(known) :] == known
        assert len(following.all()) <= 10


def test_without_a_file_sessions_are_closed_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "nowhere" / "closed") as sessions:
        sessions.add("a", 200)
        assert "a" in sessions
    assert "not known to be after a restart" in caplog.text
