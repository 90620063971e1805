"""Work of which a few pieces go on at a time."""

import asyncio

from halimede.net.line import Line, Place


class Work:
    """A piece of work, and what it was told."""

    def __init__(self, line: Line) -> None:
        self.begun = False
        self.late = asyncio.Event()
        self.place: Place = line.join(self._begin, self.late.set)

    def _begin(self) -> None:
        self.begun = True


def test_others_wait_in_order_until_a_place_is_free() -> None:
    async def test() -> None:
        line = Line(2, 60)
        works = [Work(line) for _ in range(5)]
        assert [each.begun for each in works] == [True, True, False, False, False]
        works[0].place.leave()
        works[0].place.leave()  # a second time, which changes nothing
        assert [each.begun for each in works] == [True, True, True, False, False]
        works[3].place.leave()  # it does not want to any more
        works[1].place.leave()
        assert [each.begun for each in works] == [True, True, True, False, True]

    asyncio.run(test())


def test_who_waits_too_long_is_told_so_and_never_begins() -> None:
    async def test() -> None:
        line = Line(1, 0.01)
        first, second = Work(line), Work(line)
        await second.late.wait()
        first.place.leave()
        assert not second.begun
        assert Work(line).begun
        assert not first.late.is_set()

    asyncio.run(test())
