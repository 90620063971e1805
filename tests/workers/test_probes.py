import asyncio

from halimede.workers.probes import TIMED_OUT, ReadinessProbe
from halimede_worker.messages import wire


class Worker:
    """The worker that is asked; `sent` are the messages to it."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []
        self.asked = asyncio.Event()

    def send(self, message: tuple[int, int]) -> None:
        self.sent.append(message)
        self.asked.set()


def test_a_check_tells_what_the_worker_answers() -> None:
    async def test() -> None:
        worker = Worker()
        probe = ReadinessProbe(worker.send)
        for number, answer in ((1, (True, "")), (2, (False, "not yet"))):
            check = asyncio.create_task(probe.check())
            await worker.asked.wait()
            worker.asked.clear()
            assert worker.sent[-1] == (wire.READY, number)
            probe.answered(number, *answer)
            assert await check == answer
        assert len(worker.sent) == 2

    asyncio.run(test())


def test_checks_at_the_same_time_share_one_call() -> None:
    async def test() -> None:
        worker = Worker()
        probe = ReadinessProbe(worker.send)
        checks = [asyncio.create_task(probe.check()) for _ in range(3)]
        await worker.asked.wait()
        await asyncio.sleep(0)
        probe.answered(1, True, "")
        assert await asyncio.gather(*checks) == [(True, "")] * 3
        assert worker.sent == [(wire.READY, 1)]

    asyncio.run(test())


def test_a_check_that_is_late_is_not_ready_and_its_call_answers_the_next() -> None:
    async def test() -> None:
        worker = Worker()
        probe = ReadinessProbe(worker.send)
        assert await probe.check(timeout_s=0) == (False, TIMED_OUT)
        check = asyncio.create_task(probe.check())
        await asyncio.sleep(0)
        probe.answered(1, True, "")
        assert await check == (True, "")
        assert worker.sent == [(wire.READY, 1)]

    asyncio.run(test())


def test_an_answer_that_nobody_waits_for_is_not_kept() -> None:
    async def test() -> None:
        worker = Worker()
        probe = ReadinessProbe(worker.send)
        await probe.check(timeout_s=0)
        probe.answered(1, True, "")
        probe.answered(1, True, "")
        assert await probe.check(timeout_s=0) == (False, TIMED_OUT)
        assert [number for _, number in worker.sent] == [1, 2]

    asyncio.run(test())


def test_a_client_that_gives_up_ends_no_other_check() -> None:
    async def test() -> None:
        worker = Worker()
        probe = ReadinessProbe(worker.send)
        impatient, patient = (asyncio.create_task(probe.check()) for _ in range(2))
        await worker.asked.wait()
        impatient.cancel()
        await asyncio.wait({impatient})
        probe.answered(1, True, "")
        assert await patient == (True, "")

    asyncio.run(test())


def test_the_end_of_the_worker_answers() -> None:
    async def test() -> None:
        worker = Worker()
        probe = ReadinessProbe(worker.send)
        probe.exited("nobody waits")
        check = asyncio.create_task(probe.check())
        await worker.asked.wait()
        probe.exited("Stub process 'm_0' is not healthy.")
        assert await check == (False, "Stub process 'm_0' is not healthy.")

    asyncio.run(test())
