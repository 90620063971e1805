"""What is said when file descriptors run out, and which of them are kept."""

import errno
import os
import resource

import pytest

from halimede_worker import descriptors
from halimede_worker.messages.memory import SharedMemoryError, create_segment


@pytest.mark.parametrize(
    ("limit", "first"), [(100, 75), (1024, 768), (65_536, 65_024), (resource.RLIM_INFINITY, (1 << 30) - 512)]
)
def test_a_quarter_is_kept_at_most_512(monkeypatch: pytest.MonkeyPatch, limit: int, first: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert descriptors.usable() == first


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_want_of_descriptors_is_told_as_that_and_not_as_want_of_memory(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "memfd_create", refuse)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.raises(SharedMemoryError) as raised:
        create_segment(1, 1 << 21)
    assert str(raised.value) == (
        f"cannot get 2097152 bytes of shared memory: out of file descriptors, of which this process may have {soft}"
    )


def test_other_errors_are_told_in_the_words_of_the_system() -> None:
    assert descriptors.reason(OSError(errno.EACCES, "Permission denied")) == "Permission denied"
    assert descriptors.reason(OSError("unknown")) == "unknown"
