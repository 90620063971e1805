"""A body that is collected whole before it is looked at, as it counts against the memory of all of them."""

from collections.abc import Callable

from halimede.hosting.errors import ApiError
from halimede.net.receiving import BodyTooLargeError, ReceiveBudget, ReceiveError, StalledError


class HeldBody:
    """The memory of one body, until `close`."""

    def __init__(self, budget: ReceiveBudget, length: int, changed: Callable[[], None]) -> None:
        """A body of which nothing has been taken.

        Args:
            budget: of all bodies.
            length: its bytes; -1 if nobody knows yet.
            changed: called when `may_take` has another answer.

        Raises:
            ApiError: it could never be received (413).
        """
        self._waits = False
        self._error: ReceiveError | None = None
        self._changed = changed
        try:
            self._reception = budget.open(self, length)
        except BodyTooLargeError as error:
            raise _too_large(error) from None

    def may_take(self) -> bool:
        """Whether to take more of the body now.

        Raises:
            ApiError: never: there is no memory for it (503), or will never be (413), or it comes too slowly (408).
        """
        if isinstance(self._error, BodyTooLargeError):
            raise _too_large(self._error)
        if isinstance(self._error, StalledError):
            raise ApiError("RequestTimeout", str(self._error), 408)
        if self._error is not None:
            raise ApiError("ServiceUnavailable", str(self._error), 503)
        return not self._waits

    def add(self, size: int) -> None:
        """So many bytes more have been taken."""
        self._reception.add(size)

    def close(self) -> None:
        """The body is complete, or given up."""
        self._reception.close()

    # the budget calls

    @property
    def may_send(self) -> bool:
        """Whether more is taken."""
        return not self._waits

    def hold_back(self) -> None:
        """Take no more; what the client sends then waits in its window."""
        self._waits = True

    def go_on(self) -> None:
        """Take what there is."""
        self._waits = False
        self._changed()

    def refuse_body(self, error: ReceiveError) -> None:
        """Give up."""
        self._error = error
        self._changed()


def _too_large(error: BodyTooLargeError) -> ApiError:
    return ApiError("RequestEntityTooLargeException", str(error), 413)
