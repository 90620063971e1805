"""What holds for all tests: how property tests run, and that tests whose packages are not installed are skipped."""

import gc
import sys
from pathlib import Path

import pytest

from tests.support.missing_packages import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

gc.set_threshold(20_000, 20, 50)  # a tenth less of the processors' time than with Python's own limits


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Set up Hypothesis before a module that names it; others do not pay the half second that its import takes."""
    if "hypothesis" not in sys.modules and "hypothesis" in module_path.read_text():
        from hypothesis import settings

        # An example may take as long as a busy machine needs for it.
        settings.register_profile("any-machine", settings(), deadline=None)
        settings.load_profile("any-machine")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse property tests with deadlines: a helper module has imported Hypothesis before it was set up."""
    hypothesis = sys.modules.get("hypothesis")
    if hypothesis and hypothesis.settings.get_current_profile_name() != "any-machine":
        files = ", ".join(sorted({str(item.path) for item in session.items}))
        raise pytest.UsageError(
            f"one of these files uses Hypothesis without naming it, so it is not set up: {files}"
        )
