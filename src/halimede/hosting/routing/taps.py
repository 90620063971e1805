"""What goes by in an invocation, for whoever keeps it or copies it: never held up, changed or failed by them."""

from collections.abc import Sequence
from typing import Protocol

from halimede.http1.head import Head
from halimede.http1.upstream import ResponseHead


class Tap(Protocol):
    """Is told of one invocation. Called on the event loop, in this order; nothing that it does may take long.

    It raises nothing, and keeps no more than it has room for: nobody waits for it.
    """

    def request_data(self, data: bytes, *, complete: bool) -> None:
        """Some of the request's body, in the order of its bytes; `complete` with the last of it, once."""

    def response_begun(self, head: ResponseHead) -> None:
        """The instance answers with success (2xx); an error is told by `ended` only."""

    def response_data(self, data: bytes) -> None:
        """Some of that response's body, as the instance has sent it."""

    def ended(self, status: int, model_ns: int) -> None:
        """The invocation is over, however much was told before.

        Args:
            status: what the client was told; 499 if it did not wait.
            model_ns: from when the request was sent to the instance until its response was complete; 0 if it was
                never sent.
        """


class Observer(Protocol):
    """Looks at the invocations of a variant. Called on the event loop."""

    def observe(self, head: Head, *, streamed: bool) -> Tap | None:
        """What is told of an invocation that begins, or None to leave this one out.

        Args:
            head: the client's.
            streamed: the response is an event stream.
        """


class NoObserver:
    """Leaves all invocations out (`Observer`)."""

    def observe(self, head: Head, *, streamed: bool) -> None:
        """Nothing."""


class _Taps:
    """Several taps as one."""

    def __init__(self, taps: Sequence[Tap]) -> None:
        self._taps = taps

    def request_data(self, data: bytes, *, complete: bool) -> None:
        """Tell all of them."""
        for tap in self._taps:
            tap.request_data(data, complete=complete)

    def response_begun(self, head: ResponseHead) -> None:
        """Tell all of them."""
        for tap in self._taps:
            tap.response_begun(head)

    def response_data(self, data: bytes) -> None:
        """Tell all of them."""
        for tap in self._taps:
            tap.response_data(data)

    def ended(self, status: int, model_ns: int) -> None:
        """Tell all of them."""
        for tap in self._taps:
            tap.ended(status, model_ns)


def tap_of(observers: Sequence[Observer], head: Head, *, streamed: bool) -> Tap | None:
    """What is told of an invocation that begins; None if no observer wants it."""
    taps = [tap for each in observers if (tap := each.observe(head, streamed=streamed)) is not None]
    if len(taps) < 2:
        return taps[0] if taps else None
    return _Taps(taps)
