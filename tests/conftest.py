"""What holds for all tests: how property tests run, and that tests whose packages are not installed are skipped."""

import gc
import sys
from pathlib import Path

import pytest

from tests.support.missing_packages import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

_PROFILE = "any-machine"

gc.set_threshold(20_000, 20, 50)  # a tenth less of the processors' time than with Python's own limits


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Set up Hypothesis before a module that names it; others do not pay the half second that its import takes."""
    if "hypothesis" in module_path.read_text():
        from hypothesis import settings

        if settings.get_current_profile_name() == _PROFILE:
            return
        # An example may take as long as a busy machine needs for it.
        settings.register_profile(_PROFILE, settings(), deadline=None)
        settings.load_profile(_PROFILE)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse property tests with deadlines: a helper module has imported Hypothesis before it was set up."""
    hypothesis = sys.modules.get("hypothesis")  # also imported by `pytest -v`, whatever the tests are
    if hypothesis and hypothesis.settings.get_current_profile_name() != _PROFILE:
        properties = [item for item in session.items if _is_property(item)]
        if not properties:
            return
        files = ", ".join(sorted({str(item.path) for item in properties}))
        raise pytest.UsageError(
            f"one of these files uses Hypothesis without naming it, so it is not set up: {files}"
        )


def _is_property(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))
