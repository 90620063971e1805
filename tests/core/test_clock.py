import threading

from halimede.core.clock import MICROSECOND, MILLISECOND, LoopClock, VirtualClock
from tests.support.loops import LoopThread


def test_virtual_time_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock()
    calls: list[str] = []
    clock.call_at(10, calls.append, "later")
    clock.call_soon(calls.append, "soon")
    clock.run()
    assert (calls, clock.now()) == (["soon"], 0)
    clock.advance(9)
    assert calls == ["soon"]
    clock.advance(1)
    assert (calls, clock.now()) == (["soon", "later"], 10)


def test_virtual_calls_come_in_the_order_of_their_times_each_at_its_own() -> None:
    clock = VirtualClock()
    calls: list[tuple[str, int]] = []
    clock.call_at(20, lambda: calls.append(("b", clock.now())))
    clock.call_at(10, lambda: clock.call_at(15, lambda: calls.append(("a", clock.now()))))
    clock.advance(100)
    assert calls == [("a", 15), ("b", 20)]


def test_a_cancelled_timer_is_not_called() -> None:
    clock = VirtualClock()
    calls: list[str] = []
    clock.call_at(10, calls.append, "never").cancel()
    clock.advance(20)
    assert calls == []


def test_the_loops_timers_come_in_order_and_never_early() -> None:
    with LoopThread() as loop:
        clock = loop.call(LoopClock, loop.loop)
        fired: list[tuple[str, int]] = []
        done = threading.Event()

        def note(name: str, when: int) -> None:
            fired.append((name, clock.now() - when))
            if name == "last":
                done.set()

        def start() -> None:
            now = clock.now()
            for name, delay in (
                ("last", 20 * MILLISECOND),
                ("second", 300 * MICROSECOND),
                ("first", 100 * MICROSECOND),
            ):
                clock.call_at(now + delay, note, name, now + delay)
            clock.call_at(now + 200 * MICROSECOND, note, "never", now).cancel()

        loop.call(start)
        assert done.wait(10)
        loop.call(clock.close)
    assert [name for name, _ in fired] == ["first", "second", "last"]
    assert all(late >= 0 for _, late in fired)


def test_a_timer_in_the_past_is_called_soon() -> None:
    with LoopThread() as loop:
        clock = loop.call(LoopClock, loop.loop)
        done = threading.Event()
        loop.call(clock.call_at, 1, done.set)
        assert done.wait(10)
        loop.call(clock.close)
