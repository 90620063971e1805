"""Schedulers that share a limiter, on a virtual clock."""

from collections import Counter

import pytest

from halimede.backends.batch import Batch
from halimede.config.model_config_pb2 import ModelDynamicBatching
from halimede.core.clock import VirtualClock
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.workers.host import WorkerName
from tests.engine.scheduling.helpers import Bench
from tests.engine.scheduling.rate_limits.declarations import needing


class Site:
    """Models that share a limiter and a clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.limiter = RateLimiter([], self.clock.call_soon)
        self.benches: dict[str, Bench] = {}

    def model(
        self,
        name: str,
        *resources: str,
        priority: int = 1,
        devices: tuple[int, ...] = (0,),
        config: ModelDynamicBatching | None = None,
    ) -> Bench:
        """A model with an instance on each of the devices."""
        bench = Bench(config, instances=len(devices), clock=self.clock)
        for number, (runner, device) in enumerate(zip(bench.runners, devices, strict=True)):
            self.limiter.add(
                runner,
                WorkerName(name, 1, f"{name}_{number}"),
                needing(*resources, priority=priority),
                device,
            )
        bench.scheduler.limiter = self.limiter
        self.benches[name] = bench
        return bench

    def running(self) -> str:
        """The models that execute, each as often as it has executions."""
        return "".join(sorted(name * len(bench.running) for name, bench in self.benches.items()))

    def finish_one(self) -> str:
        """End an execution: which model's it was."""
        name, bench = next((name, bench) for name, bench in self.benches.items() if bench.running)
        bench.finish()
        return name


def test_models_that_share_a_resource_never_execute_at_once() -> None:
    site = Site()
    for name in "ab":
        site.model(name, "R:1:global").send("1234")
    for _ in range(8):
        assert len(site.running()) == 1
        site.finish_one()
    assert site.running() == ""
    assert [site.benches[name].done for name in "ab"] == [list("1234")] * 2


def test_a_batch_is_formed_when_its_instance_has_what_it_needs() -> None:
    site = Site()
    a = site.model("a", "R:1:global")
    b = site.model("b", "R:1:global", config=ModelDynamicBatching())
    a.send("1")
    b.send("1")
    b.send("2")
    b.send("3")
    assert b.batches == []
    a.finish()
    assert b.batches == ["123"]


@pytest.mark.parametrize(
    ("priorities", "shares"),
    [((1, 2), (20, 10)), ((1, 1), (15, 15)), ((1, 4), (24, 6)), ((0, 2), (20, 10))],
)
def test_priorities_share_out_the_executions(priorities: tuple[int, int], shares: tuple[int, int]) -> None:
    site = Site()
    for name, priority in zip("ab", priorities, strict=True):
        site.model(name, "R:1:global", priority=priority).send("x" * 100)
    executed = Counter(site.finish_one() for _ in range(30))
    assert all(abs(executed[name] - share) <= 1 for name, share in zip("ab", shares, strict=True))


def test_an_instance_is_not_owed_what_it_missed() -> None:
    """After one has executed alone, both have their shares at once, as with tritonserver."""
    site = Site()
    a, b = site.model("a", "R:1:global"), site.model("b", "R:1:global", priority=2)
    a.send("x" * 140)
    assert {site.finish_one() for _ in range(40)} == {"a"}
    b.send("x" * 100)
    executed = Counter(site.finish_one() for _ in range(30))
    assert abs(executed["a"] - 20) <= 1


def test_what_needs_nothing_of_it_is_not_held_up() -> None:
    site = Site()
    site.model("a", "R:2:global").send("12")
    site.model("b", "R:2:global", "S:1:global").send("1")
    site.model("c", "T:1:global").send("1")
    site.model("d").send("1")
    assert site.running() == "acd"


def test_what_needs_much_is_not_overtaken_by_what_needs_little() -> None:
    site = Site()
    big = site.model("a", "R:2:global")
    small = site.model("b", "R:1:global", devices=(0, 0))
    small.send("xxxxxx")
    assert site.running() == "bb"
    big.send("1")
    small.finish()
    assert site.running() == "b", "the freed half is kept"
    small.finish()
    assert site.running() == "a"
    big.finish()
    assert site.running() == "bb"


def test_resources_of_devices_are_of_each_device() -> None:
    site = Site()
    a = site.model("a", "R:1", devices=(0, 1))
    b = site.model("b", "R:1", devices=(1,))
    a.send("1234")
    b.send("1")
    assert site.running() == "aa"
    a.finish(1 if a.running[1][0] is a.runners[1] else 0)
    assert site.running() == "ab"


def test_several_instances_run_while_there_is_enough() -> None:
    site = Site()
    site.model("z", "R:3:global")
    site.model("a", "R:1:global", devices=(0,) * 5).send("x" * 8)
    assert site.running() == "aaa"


def test_those_go_on_without_others_that_wait_for_nothing_that_these_hold() -> None:
    site = Site()
    site.model("z", "R:3:global")
    for name, resource in (
        ("a", "R:1:global"),
        ("b", "R:2:global"),
        ("c", "R:2:global"),
        ("d", "R:3:global"),
    ):
        site.model(name, resource).send("1")
    assert site.running() == "ab"

    def going_on(*without: str, in_turn: bool = False) -> str:
        names = [WorkerName(name, 1, f"{name}_0") for name in without]
        return "".join(claim.name.model for claim in site.limiter.going_on_without(names, in_turn=in_turn))

    assert going_on() == "cd"
    assert going_on("a") == "c", "b gives back what c needs"
    assert going_on("b") == ""
    assert going_on("b", in_turn=True) == ""


def test_what_a_batch_needs_no_more_goes_on_when_nothing_is_queued() -> None:
    """The requests of an instance that waits are cancelled: its turn is passed on."""
    site = Site()
    a, b, c = (site.model(name, "R:1:global") for name in "abc")
    a.send("1")
    (request,) = b.send("1")
    c.send("1")
    request.cancel()
    a.finish()
    assert site.running() == "c"
    c.finish()
    b.send("2")
    assert site.running() == "b"


def test_a_turn_is_passed_on_while_a_batch_is_not_due() -> None:
    site = Site()
    config = ModelDynamicBatching(max_queue_delay_microseconds=100)
    a, b = site.model("a", "R:1:global", config=config), site.model("b", "R:1:global")
    a.send("1")
    b.send("1")
    assert site.running() == "b"
    b.finish()
    assert site.running() == ""
    a.wait(100)
    assert site.running() == "a"


def test_an_instance_that_is_gone_while_it_waits_passes_its_turn_on() -> None:
    site = Site()
    a, b, c = (site.model(name, "R:1:global") for name in "abc")
    for bench in (a, b, c):
        bench.send("1")
    b.runners[0].free = False
    b.scheduler.changed(b.runners[0])
    a.finish()
    assert site.running() == "c"
    b.runners[0].free = True
    b.scheduler.changed(b.runners[0])
    assert site.running() == "c"
    c.finish()
    assert site.running() == "b"


def test_an_instance_that_crashes_gives_back_what_it_held() -> None:
    site = Site()
    a, b = site.model("a", "R:1:global"), site.model("b", "R:1:global")
    a.send("12")
    b.send("1")
    ((runner, batch),) = a.running
    a.running.clear()
    runner.free = False
    a.scheduler.changed(runner)
    a.scheduler.finished(runner, batch)
    site.clock.run()
    assert site.running() == "b"


def test_an_instance_that_is_removed_gives_back_what_it_held() -> None:
    site = Site()
    a, b = site.model("a", "R:1:global"), site.model("b", "R:1:global")
    a.send("1")
    b.send("1")
    site.limiter.remove(a.runners[0])
    site.clock.run()
    assert site.running() == "ab"
    site.limiter.release(a.runners[0])  # which changes nothing
    b.finish()
    assert site.running() == "a"


def test_pools_follow_the_instances_that_there_are() -> None:
    site = Site()
    big = site.model("a", "R:3:global")
    small = site.model("b", "R:1:global", devices=(0,) * 4)
    small.send("x" * 8)
    assert site.running() == "bbb"
    site.limiter.remove(big.runners[0])
    small.finish()
    assert site.running() == "bb", "more is in use than there is now"
    small.finish()
    small.finish()
    assert site.running() == "b"


class Inline:
    """An instance whose batches run on the event loop."""

    free = healthy = True
    only_full = False

    def __init__(self, ran: list[str], name: str) -> None:
        self._ran = ran
        self._name = name

    def run(self, batch: Batch) -> bool:
        self._ran.append(self._name)
        return True

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """It has none."""


def test_batches_on_the_event_loop_take_turns_too() -> None:
    site = Site()
    ran: list[str] = []
    for name in "ab":
        bench = site.model(name, "R:1:global")
        site.limiter.remove(bench.runners[0])
        inline = Inline(ran, name)
        site.limiter.add(inline, WorkerName(name, 1, "0"), needing("R:1:global"), 0)
        bench.scheduler.start([inline])
    blocker = site.model("c", "R:1:global")
    blocker.send("1")
    for name in "ab":
        site.benches[name].send("123")
    assert ran == []
    blocker.finish()
    assert ran == list("ababab")
