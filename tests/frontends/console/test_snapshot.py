"""What the feeds of snapshots do while nobody listens."""

from collections.abc import Callable

from halimede.core.clock import SECOND, VirtualClock
from halimede.frontends.console.feed import Feed, Listener


class _Stream:
    def __init__(self) -> None:
        self.full = False
        self.ends = 0
        self.written: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self.written.append(piece)

    def end(self) -> None:
        self.ends += 1


class _Exchange:
    def __init__(self) -> None:
        self.body = _Stream()
        self.on_disconnect: Callable[[], None] | None = None

    def lose(self) -> None:
        assert self.on_disconnect is not None
        self.on_disconnect()

    def stream(self, status: int, _content_type: str) -> _Stream:
        assert status == 200
        return self.body


class _Told:
    """A feed, whose listeners are told how often it has told."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.times = 0
        self.stopping = False
        self.feed = Feed(self.clock, self.tell, lambda: self.stopping)

    def tell(self, listeners: list[Listener]) -> None:
        self.times += 1
        for listener in listeners:
            listener.stream.write(b"%d" % self.times)

    def join(self) -> _Exchange:
        exchange = _Exchange()
        self.feed.listen(exchange)  # type: ignore[arg-type]  # all that a feed uses
        return exchange


def test_while_nobody_listens_nothing_is_done() -> None:
    told = _Told()
    told.clock.advance(10 * SECOND)
    assert told.times == 0
    one = told.join()
    told.clock.advance(2 * SECOND)
    assert one.body.written == [b"1", b"2", b"3"]
    one.lose()
    told.clock.advance(10 * SECOND)
    assert told.times == 3
    two = told.join()
    assert two.body.written == [b"4"]


def test_all_listeners_share_what_is_told_each_second() -> None:
    told = _Told()
    one, two = told.join(), told.join()
    told.clock.advance(SECOND)
    assert told.times == 3
    assert one.body.written[-1] == two.body.written[-1] == b"3"


def test_who_reads_too_slowly_misses_some() -> None:
    told = _Told()
    slow = told.join()
    slow.body.full = True
    told.clock.advance(3 * SECOND)
    assert slow.body.written == [b"1"]
    slow.body.full = False
    told.clock.advance(SECOND)
    assert len(slow.body.written) == 2


def test_streams_end_as_soon_as_the_server_is_about_to_stop() -> None:
    told = _Told()
    one = told.join()
    told.feed.end()
    assert one.body.ends == 0
    told.stopping = True
    told.feed.end()
    assert one.body.ends == 1
    told.clock.advance(10 * SECOND)
    assert told.times == 1
