import sys
from threading import Event

import pytest

from halimede.core.background_threads import SWITCH_S, BackgroundThreads


def test_threads_switch_soon_while_one_of_them_works() -> None:
    before = sys.getswitchinterval()
    goes_on, began = Event(), [Event(), Event()]

    def work(number: int) -> float:
        began[number].set()
        assert goes_on.wait(60)
        return sys.getswitchinterval()

    with BackgroundThreads(2) as threads:
        results = [threads.submit(work, number) for number in (0, 1)]
        assert all(event.wait(60) for event in began)
        during = sys.getswitchinterval()
        goes_on.set()
        assert [result.result() for result in results] == [during] * 2 == pytest.approx([SWITCH_S] * 2)
        with pytest.raises(ZeroDivisionError):
            threads.submit(lambda: 1 / 0).result()
    assert sys.getswitchinterval() == before
