"""A pytest plugin for tests of mutants: the quickest modules run first, and property tests try the same examples."""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from mutmut.state import state

from scripts.testing.mutation import AT_IMPORT

# Examples are not made smaller: that one fails is enough. tests/conftest.py asks for a profile of this name.
settings.register_profile(
    "any-machine",
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("any-machine")

STATS = Path("mutmut-stats.json")
"""What mutmut writes, in the directory in which it runs the tests: how long each test took without a mutant."""
LONGER = 5
"""How often as long as that a test may take, and how many seconds more: a mutant often makes one wait for ever."""
MORE_S = 10


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules first whose tests take the shortest; tests of a module stay together and share its fixtures."""
    if not STATS.exists():
        return
    durations = json.loads(STATS.read_text())["duration_by_test"]
    seconds: dict[Path, float] = defaultdict(float)
    for item in items:
        taken = durations.get(item.nodeid, 0.0)
        item.add_marker(pytest.mark.timeout(MORE_S + LONGER * taken))
        seconds[item.path] += taken
    items.sort(key=lambda item: (seconds[item.path], item.path, item.location[1] or 0))


def pytest_collection_finish() -> None:
    """Keep apart what modules call when they are imported, before there is a mutant: the first test would have it."""
    if os.environ["MUTANT_UNDER_TEST"] == "stats":
        called = state()._stats  # noqa: SLF001 - mutmut has no other place for it
        Path(AT_IMPORT).write_text(json.dumps(sorted(called)))
        called.clear()
