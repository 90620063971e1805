from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosting.monitoring.serving import FakeRunner, Monitored, definition, monitored
from tests.support.memory import tmp_path

__all__ = ["tmp_path"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Monitored]:
    """A host that only monitors, whose jobs end when the test says so; the job definition ``d`` is there."""
    with monitored(tmp_path, FakeRunner()) as made:
        made.client().create_data_quality_job_definition(**definition())
        yield made


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Monitored]:
    """A host that only monitors, whose jobs are real processes."""
    with monitored(tmp_path, None) as made:
        yield made
