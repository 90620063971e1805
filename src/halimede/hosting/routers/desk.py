"""Where routers ask for the models of multi-model variants; the other side of `placements`."""

from collections.abc import Callable
from itertools import count

from halimede.hosting.errors import ApiError
from halimede.hosting.routers.messages import Cancel, Failed, NothingDone, NotPlaced, Place, Placed, Release
from halimede.hosting.routing.table import Placement, Residency, Target, VariantRoute


class Desk:
    """What one router has asked for, and been given. Lives on the event loop."""

    def __init__(
        self,
        send: Callable[[object], None],
        variant: Callable[[int], VariantRoute | None],
        column: Callable[[Target], int | None],
    ) -> None:
        """Nothing has been asked.

        Args:
            send: tells the router something.
            variant: the variant with a number.
            column: the column of an instance.
        """
        self._send = send
        self._variant = variant
        self._column = column
        self._numbers = count(1)
        self._hopeless = 0  # what has failed last, and nothing could be done about it
        self._given: dict[int, Placement] = {}
        self._waiting: dict[int, tuple[Residency, Callable[[Placement | ApiError], None]]] = {}

    def take(self, message: object) -> bool:
        """Do what a message says; False if it is about something else."""
        if isinstance(message, Place):
            self._place(message)
        elif isinstance(message, Release):
            self._given.pop(message.placement).release()
        elif isinstance(message, Failed):
            if not self._given[message.placement].failed(message.status):
                self._hopeless = message.placement
        elif isinstance(message, Cancel):
            self._cancel(message.request)
        else:
            return False
        return True

    def _place(self, message: Place) -> None:
        variant = self._variant(message.variant)
        residency = None if variant is None else variant.residency
        if residency is None:  # its endpoint has gone meanwhile
            error = ApiError("ServiceUnavailable", "the variant takes no more requests; try again later", 503)
            self._answer(message.request, error)
            return

        if message.after and message.after == self._hopeless:
            self._send(NothingDone(message.request))
            return

        def on_placed(placement: Placement | ApiError) -> None:
            self._waiting.pop(message.request, None)
            self._answer(message.request, placement)

        self._waiting[message.request] = residency, on_placed
        placement = residency.place(message.model, message.deadline_ns, on_placed)
        if placement is not None:
            on_placed(placement)

    def _answer(self, request: int, placement: Placement | ApiError) -> None:
        if isinstance(placement, ApiError):
            error = placement
            self._send(NotPlaced(request, error.code, error.message, error.status, error.fields))
            return
        column = self._column(placement.target)
        if column is None:  # the instance has left
            placement.release()
            error = ApiError(
                "ServiceUnavailable", "the instance takes no more requests; try again later", 503
            )
            self._answer(request, error)
            return
        number = next(self._numbers)
        self._given[number] = placement
        self._send(Placed(request, number, column, placement.path, placement.cache_hit))

    def _cancel(self, request: int) -> None:
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            residency, on_placed = waiting
            residency.cancel(on_placed)

    def close(self) -> None:
        """The router is gone: nobody waits, and what it was given is given back."""
        for request in list(self._waiting):
            self._cancel(request)
        for placement in self._given.values():
            placement.release()
        self._given.clear()
