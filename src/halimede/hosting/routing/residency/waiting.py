"""The requests that wait until a model is loaded, and until when they may."""

from halimede.hosting.routing.residency.entry import Entry, Waiter
from halimede.hosting.routing.table import OnPlaced


class Waiting:
    """The requests that wait for models of one variant."""

    def __init__(self) -> None:
        """None waits."""
        self._waiters: dict[OnPlaced, Waiter] = {}
        self._of: dict[Entry, list[Waiter]] = {}

    def add(self, waiter: Waiter) -> None:
        """A request waits for its entry's model."""
        waiter.entry.waiting += 1
        self._of.setdefault(waiter.entry, []).append(waiter)
        self._waiters[waiter.on_placed] = waiter

    def take(self, entry: Entry) -> list[Waiter]:
        """All that wait for a model, which wait no more."""
        waiters = self._of.pop(entry, [])
        entry.waiting = 0
        for waiter in waiters:
            del self._waiters[waiter.on_placed]
        return waiters

    def cancel(self, on_placed: OnPlaced) -> None:
        """A request waits no more, if it does."""
        waiter = self._waiters.get(on_placed)
        if waiter is not None:
            self._end(waiter)

    def expired(self, now_ns: int) -> list[Waiter]:
        """Those that have waited long enough, and wait no more."""
        late = [waiter for waiter in self._waiters.values() if waiter.deadline_ns <= now_ns]
        for waiter in late:
            self._end(waiter)
        return late

    def _end(self, waiter: Waiter) -> None:
        entry = waiter.entry
        entry.waiting -= 1
        self._of[entry].remove(waiter)
        if not entry.waiting:
            del self._of[entry]
        del self._waiters[waiter.on_placed]
