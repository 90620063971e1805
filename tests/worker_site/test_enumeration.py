"""How enumerations print."""

import pytest

from halimede_worker.calls.logger import LogLevel
from halimede_worker.calls.metrics import MetricKind
from halimede_worker.calls.preferred_memory import MemoryType
from halimede_worker.enumeration import NamedInt
from halimede_worker.errors import ErrorCode


@pytest.mark.parametrize(
    ("member", "text"),
    [
        (ErrorCode.CANCELLED, "__ErrorCode.CANCELLED"),
        (LogLevel.INFO, "LogLevel.INFO"),
        (MetricKind.GAUGE, "MetricKind.GAUGE"),
        (MemoryType.TRITONSERVER_MEMORY_CPU, "MemoryType.TRITONSERVER_MEMORY_CPU"),
    ],
)
def test_members_print_their_names(member: NamedInt, text: str) -> None:
    assert str(member) == f"{member}" == "{}".format(member) == text  # noqa: UP032 - each has a way of its own
    assert repr(member) == f"<{text}: {int(member)}>"
    assert f"{member:>60}" == text.rjust(60)
