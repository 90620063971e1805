"""Server-sent events that all who listen get once a second. While nobody listens, nothing is done."""

from collections.abc import Callable, Generator

import orjson

from halimede.core.clock import SECOND, Clock, Timer
from halimede.frontends.http.generate import EVENT_STREAM
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.http.transport.streaming import ResponseStream
from halimede.frontends.recent_logs import RecentLogs

INTERVAL_NS = SECOND


class Listener:
    """One client of a feed.

    Attributes:
        stream: what it reads.
        seen: the number of the latest record of the log that it has.
    """

    __slots__ = ("seen", "stream")

    def __init__(self, stream: ResponseStream, seen: int) -> None:
        self.stream = stream
        self.seen = seen


class Feed:
    """Tells its listeners something each second. Lives on the event loop.

    Args:
        clock: the time.
        tell: called with all listeners each second, and with a new one at once.
        over: whether the server is about to stop, so that streams have to end.
    """

    def __init__(
        self, clock: Clock, tell: Callable[[list[Listener]], None], over: Callable[[], bool]
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._over = over
        self._listeners: dict[Listener, Exchange] = {}
        self._timer: Timer | None = None

    @property
    def listeners(self) -> int:
        """How many there are."""
        return len(self._listeners)

    def listen(self, exchange: Exchange, seen: int = 0) -> None:
        """Answer with events until the client has gone or the server stops."""
        listener = Listener(exchange.stream(200, EVENT_STREAM), seen)
        self._listeners[listener] = exchange
        exchange.on_disconnect = lambda: self._leave(listener)
        self._tell([listener])
        if self._timer is None:
            self._wait()

    def end(self) -> None:
        """End all streams, if the server is about to stop."""
        if not self._over():
            return
        for listener, exchange in self._listeners.items():
            exchange.on_disconnect = None
            listener.stream.end()
        self._listeners.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = self._clock.call_at(self._clock.now() + INTERVAL_NS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.end()
        if self._listeners:
            # who reads too slowly misses some
            self._tell([listener for listener in self._listeners if not listener.stream.full])
            self._wait()

    def _leave(self, listener: Listener) -> None:
        self._listeners.pop(listener, None)
        if not self._listeners and self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SnapshotEvents:
    """Sends listeners snapshots, each made in steps for all who wait for one.

    Args:
        clock: calls what takes the next step.
        take: begins a snapshot.
    """

    def __init__(self, clock: Clock, take: Callable[[], Generator[None, None, dict[str, object]]]) -> None:
        self._clock = clock
        self._begin = take
        self._steps: Generator[None, None, dict[str, object]] | None = None
        self._waiting: dict[Listener, None] = {}

    def send(self, listeners: list[Listener]) -> None:
        """Send each the same snapshot, or the one that is being made."""
        self._waiting.update(dict.fromkeys(listeners))
        if self._waiting and self._steps is None:
            self._steps = self._begin()
            self._take()

    def _take(self) -> None:
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration as end:
            self._steps = None
            event = _event("snapshot", end.value)
            waiting, self._waiting = self._waiting, {}
            for listener in waiting:
                listener.stream.write(event)
        except BaseException:
            self._steps = None
            raise
        else:
            self._clock.call_at(self._clock.now(), self._take)  # in another turn of the loop


def send_logs(recent: RecentLogs, listeners: list[Listener]) -> None:
    """Send each the records that it has not had; a comment if there are none, so that it is known to be there."""
    for listener in listeners:
        records = recent.after(listener.seen)
        if records:
            listener.seen = records[-1].number
            listener.stream.write(_event("logs", [record._asdict() for record in records]))
        else:
            listener.stream.write(b":\n\n")


def _event(kind: str, document: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(document))
