import threading

import pytest

from halimede.core.clock import MICROSECOND, MILLISECOND, LoopClock, VirtualClock, WallClock
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
        assert done.wait(60)
        loop.call(clock.close)
    assert [name for name, _ in fired] == ["first", "second", "last"]
    assert all(late >= 0 for _, late in fired)


def test_a_timer_in_the_past_is_called_soon() -> None:
    with LoopThread() as loop:
        clock = loop.call(LoopClock, loop.loop)
        done = threading.Event()
        loop.call(clock.call_at, 1, done.set)
        assert done.wait(60)
        loop.call(clock.close)


def test_what_a_call_asks_for_soon_is_called_in_the_same_turn_of_the_loop() -> None:
    with LoopThread() as loop:
        calls: list[str] = []
        done = threading.Event()

        def start() -> None:
            clock = LoopClock(loop.loop)

            def first() -> None:
                calls.append("first")
                clock.call_soon(calls.append, "second")

            def another_turn() -> None:
                calls.append("another turn")
                clock.close()
                done.set()

            clock.call_soon(first)
            loop.loop.call_soon(another_turn)

        loop.call(start)
        assert done.wait(60)
        assert calls == ["first", "second", "another turn"]


def test_calls_that_ask_for_more_without_end_leave_room_for_others() -> None:
    with LoopThread() as loop:
        clock = loop.call(LoopClock, loop.loop)
        over = threading.Event()

        def again() -> None:
            if not over.is_set():
                clock.call_soon(again)

        loop.call(again)
        loop.call(over.set)  # which is called although there is always something to do
        assert over.is_set()
        loop.call(clock.close)


def test_a_call_that_fails_does_not_keep_others_from_being_made() -> None:
    with LoopThread() as loop:
        clock = loop.call(LoopClock, loop.loop)
        told: list[BaseException] = []
        loop.call(loop.loop.set_exception_handler, lambda _, context: told.append(context["exception"]))
        done = threading.Event()

        def start() -> None:
            clock.call_soon(lambda: 1 // 0)
            clock.call_soon(done.set)

        loop.call(start)
        assert done.wait(60)
        assert isinstance(told[0], ZeroDivisionError)
        loop.call(clock.close)


def test_what_was_to_be_called_soon_is_left_alone_aside() -> None:
    with LoopThread() as loop:
        clock = loop.call(LoopClock, loop.loop)
        calls: list[str] = []
        done = threading.Event()

        def start() -> None:
            clock.call_soon(calls.append, "before")
            with clock.aside():
                clock.call_soon(calls.append, "meanwhile")
                assert clock.run_until(lambda: bool(calls))
                assert not clock.run_until(lambda: "never" in calls)
            assert calls == ["meanwhile"]
            clock.call_soon(done.set)

        loop.call(start)
        assert done.wait(60)
        assert calls == ["meanwhile", "before"]
        loop.call(clock.close)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_the_wall_clock_approaches_a_system_clock_that_was_set_by_a_minute_an_hour(jump: float) -> None:
    system, steady = 1e9, 50.0
    clock = WallClock(lambda: system, lambda: steady)
    system += jump
    assert clock.now() == 1e9
    before = 1e9
    for hour in range(1, 62):
        steady, system = steady + 3600, system + 3600
        moved = clock.now() - before
        assert moved == pytest.approx(3600 + max(min(jump, 60), -60) if hour <= 60 else 3600)
        before += moved
    assert before == pytest.approx(system)


def test_the_wall_clock_says_when_something_of_the_system_clock_comes() -> None:
    system, steady = 1e9, 50.0
    clock = WallClock(lambda: system, lambda: steady)
    assert clock.of_system(system + 5) == clock.now() + 5
    system -= 1e8
    assert clock.of_system(system + 5) == clock.now() + 5


def test_wall_clocks_of_processes_agree_also_if_one_began_after_the_system_clock_was_set() -> None:
    system, steady = 1e9, 50.0
    clock = WallClock(lambda: system, lambda: steady)
    system += 1e6
    other = WallClock(lambda: system, lambda: steady)
    other.follow(clock.state())
    assert (clock.now(), other.now()) == (1e9, 1e9)
