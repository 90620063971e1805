"""A timer that is exact to microseconds; those of event loops are exact to a millisecond."""

import ctypes
import os

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE = 1
_SECOND = 1_000_000_000


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


class Timer:
    """A file descriptor that becomes readable at a time.

    Raises:
        OSError: the system has no more file descriptors.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._library.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._setting = _Setting()

    def fileno(self) -> int:
        """The file descriptor."""
        return self._fd

    def set(self, at: int) -> None:
        """Become readable at that time of `time.monotonic_ns`, at once if it is over."""
        value = self._setting.value
        value.seconds, value.nanoseconds = divmod(max(at, 1), _SECOND)
        self._library.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(self._setting), None)

    def acknowledge(self) -> None:
        """Be no longer readable."""
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give the file descriptor back."""
        os.close(self._fd)
