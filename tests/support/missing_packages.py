"""Hooks of pytest: what needs a package that is not installed is skipped, with the name of the package.

So a partial environment, or a Python for which a package has no wheel yet, runs what it can. Only imports of other
people's packages count: a wrong name of our own is an error.
"""

import sys
from collections.abc import Generator

import pytest

REASON = "needs the package "
_OURS = {"benchmarks", "examples", "halimede", "halimede_worker", "scripts", "tests"}


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that imports a package which is not installed."""
    report = yield
    call: pytest.CallInfo[list[object]] | None = getattr(report, "call", None)
    package = missing_package(call.excinfo.value) if call and call.excinfo else None
    if report.failed and package:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {REASON}{package}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that imports a package which is not installed, itself or by a fixture."""
    report = yield
    package = missing_package(call.excinfo.value) if call.excinfo else None
    if report.failed and package:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {REASON}{package}")
    return report


def missing_package(error: BaseException | None) -> str | None:
    """The package for lack of which an import failed, or None if the error has another cause."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = error.name.partition(".")[0]
            ours = package in _OURS or package in sys.stdlib_module_names
            return None if ours or package in sys.modules else package
        error = error.__cause__
    return None
