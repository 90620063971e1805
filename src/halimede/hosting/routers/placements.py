"""Multi-model variants in a router: where their models are is known to the host's own process, which is asked.

    place ─ Place ─▶ residency.place … Placed ─▶ on_placed ─ the request ─ Release ─▶ placement.release

Messages keep their order, so that a model keeps its pin until the router has given it back.
"""

from collections.abc import Callable, Mapping
from itertools import count

from halimede.hosting.errors import ApiError
from halimede.hosting.routers.messages import Cancel, Failed, NothingDone, NotPlaced, Place, Placed, Release
from halimede.hosting.routing.table import NothingDoneError, OnPlaced, Placement, Target
from halimede.hosting.substrates.base import RunningInstance

Send = Callable[[object], None]


class RemotePlacements:
    """What a router asks of models. Lives on the event loop."""

    def __init__(self, send: Send, target: Callable[[int], Target]) -> None:
        """Nothing has been asked.

        Args:
            send: tells the host's own process something.
            target: the instance with a column.
        """
        self._send = send
        self._target = target
        self._numbers = count(1)
        self._waiting: dict[int, OnPlaced] = {}
        self._failed: tuple[OnPlaced, int] | None = (
            None  # what has failed last, and who is to be placed again
        )

    def of(self, variant: int) -> "RemoteResidency":
        """The models of a variant."""
        return RemoteResidency(self, variant)

    def place(self, variant: int, model: str, deadline_ns: int, on_placed: OnPlaced) -> None:
        """Ask where a request for a model of a variant goes."""
        number = next(self._numbers)
        self._waiting[number] = on_placed
        after = self._failed[1] if self._failed is not None and self._failed[0] == on_placed else 0
        self._failed = None
        self._send(Place(number, variant, model, deadline_ns, after))

    def cancel(self, on_placed: OnPlaced) -> None:
        """Nobody waits any more."""
        for number in [number for number, each in self._waiting.items() if each == on_placed]:
            del self._waiting[number]
            self._send(Cancel(number))

    def apply(self, message: object) -> bool:
        """Do what a message says; False if it is about something else."""
        if isinstance(message, Placed):
            self._placed(message)
        elif isinstance(message, NothingDone):
            on_placed = self._waiting.pop(message.request, None)
            if on_placed is not None:
                on_placed(NothingDoneError())
        elif isinstance(message, NotPlaced):
            on_placed = self._waiting.pop(message.request, None)
            if on_placed is not None:
                on_placed(ApiError(message.code, message.message, message.status, message.fields))
        else:
            return False
        return True

    def _placed(self, message: Placed) -> None:
        on_placed = self._waiting.pop(message.request, None)
        if on_placed is None:  # nobody waits any more
            self._send(Release(message.placement))
            return

        def failed(status: int) -> bool:
            # whether something could be done about it is said when the request is placed again
            self._failed = on_placed, message.placement
            self._send(Failed(message.placement, status))
            return True

        placement = Placement(
            self._target(message.column),
            message.path,
            message.cache_hit,
            lambda: self._send(Release(message.placement)),
            failed,
        )
        on_placed(placement)


class RemoteResidency:
    """The models of a variant (`table.Residency`)."""

    def __init__(self, placements: RemotePlacements, variant: int) -> None:
        self._placements = placements
        self._variant = variant

    def place(self, model: str, deadline_ns: int, on_placed: OnPlaced) -> Placement | None:
        """Where a request for a model goes; see `table.Residency`."""
        self._placements.place(self._variant, model, deadline_ns, on_placed)
        return None

    def cancel(self, on_placed: OnPlaced) -> None:
        """The client has gone; a load that has begun goes on."""
        self._placements.cancel(on_placed)

    def joined(self, target: Target, instance: RunningInstance) -> None:
        """Nothing: the host's own process knows."""

    def left(self, target: Target) -> None:
        """Nothing: the host's own process knows."""

    def loaded_counts(self) -> Mapping[str, int]:
        """Instance → how many models it holds; here nobody knows."""
        return {}

    async def close(self) -> None:
        """Nothing: the host's own process ends what is under way."""
