"""Router processes whose starts and checks fail in ways that nobody foresaw are replaced, and the log says why."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.access.roles import InstanceRoles
from halimede.hosting.identity import Caller
from halimede.hosting.routers import routers as routers_module
from halimede.hosting.routers.link import RouterLink
from halimede.hosting.routers.routers import Routers
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.routing.table import RoutingTable
from halimede.hosting.settings import HostSettings
from halimede.hosting.substrates.base import Resources
from tests.hosting.control.fakes import on_loop
from tests.hosting.routing.serving import PROCESSES, instances, invoke, runtime, variant_route
from tests.support.waiting import wait_until, wait_until_async


class Links:
    """Routers without processes (`RouterLink`), in the order in which they were started.

    Attributes:
        made: all of them.
        failures: step of a start → what its next calls fail by, in turn.
    """

    def __init__(self) -> None:
        self.made: list[Link] = []
        self.failures: dict[str, list[Exception]] = {}

    def __call__(self, row: int, *_: Any) -> "Link":
        self.made.append(Link(self, row, len(self.made) + 1))
        return self.made[-1]


class Link:
    def __init__(self, links: Links, row: int, pid: int) -> None:
        self.row = row
        self.pid = pid
        self.is_ready = False
        self.is_buried = False
        self.gone = asyncio.Event()
        self.calls: Counter[str] = Counter()
        self._links = links

    def _call(self, name: str) -> None:
        self.calls[name] += 1
        if self._links.failures.get(name):
            raise self._links.failures[name].pop(0)

    async def start(self, rows: int) -> None:
        self._call("start")

    def send(self, message: object) -> None:
        self._call("send")

    async def sync(self) -> None:
        self._call("sync")

    async def bury(self) -> None:
        self.is_ready, self.is_buried = False, True
        self.gone.set()
        self._call("bury")

    def stop(self, grace_s: float) -> None:
        self.gone.set()


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Links:
    """Routers without processes, which are looked at, and replaced, at once."""
    links = Links()
    monkeypatch.setattr(routers_module, "RouterLink", links)
    for name in ("_HEARTBEAT_S", "_BACKOFF_S", "_LONGEST_BACKOFF_S"):
        monkeypatch.setattr(routers_module, name, 0.001)
    return links


async def started(count: int = 2) -> Routers:
    settings = HostSettings(
        Path("/nowhere"),
        Resources(1, 1),
        router_processes=count,
        caller=Caller(account="123456789012", region="eu-west-1"),
        invocation=InvocationSettings(),
    )
    sessions: Any = type("Sessions", (), {"key": b"", "closed": lambda _: ()})()
    routers = Routers(settings, RoutingTable(), InstanceRoles(Path("/nowhere")), lambda *_: None, sessions)
    await routers.start()
    return routers


async def ended(routers: Routers) -> None:
    await routers.stop(1.0)
    routers.close()


@pytest.mark.parametrize("step", ["start", "send", "sync"])
@on_loop
async def test_a_router_is_started_again_whatever_its_start_fails_by(
    links: Links, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    routers = await started()
    try:
        assert routers.processes == [1, 2] or routers.processes == [2, 1]
        if step == "sync":  # which is called of routers that run, too
            for link in links.made:
                link.sync = lambda: asyncio.sleep(0)  # type: ignore[method-assign]
        links.failures[step] = [RuntimeError("unforeseen")] * 2
        links.made[0].gone.set()
        await wait_until_async(lambda: sorted(routers.processes) == [2, 5])
        assert [link.is_buried for link in links.made] == [True, False, True, True, False]
        assert caplog.messages.count("a router process cannot be started") == 2
    finally:
        await ended(routers)


@on_loop
async def test_a_router_that_cannot_be_looked_after_is_replaced(
    links: Links, caplog: pytest.LogCaptureFixture
) -> None:
    routers = await started(1)
    try:
        links.failures = {"sync": [RuntimeError("unforeseen")], "bury": [RuntimeError("unforeseen, too")]}
        await wait_until_async(lambda: routers.processes == [2])
        assert "router process 1 cannot be looked after, and is ended" in caplog.messages
        assert "router process 1 cannot be forgotten" in caplog.messages
        assert links.made[0].is_buried
    finally:
        await ended(routers)


def test_a_real_router_is_started_again_when_its_first_start_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = RouterLink.start
    failures = [RuntimeError("unforeseen")]

    async def fail(link: RouterLink, rows: int) -> None:
        if failures:
            raise failures.pop()
        await start(link, rows)

    with instances(1) as made, runtime(variant_route("A", made)) as host:
        farm = PROCESSES.farm
        monkeypatch.setattr(RouterLink, "start", fail)
        monkeypatch.setattr(routers_module, "_LONGEST_BACKOFF_S", 0.001)

        def routers() -> set[int]:
            return set(farm.loop.call(lambda: farm.routers.processes))

        before = routers()
        assert len(before) == 2
        victim = min(before)

        def kill() -> None:
            next(link for link in farm.routers._links if link.pid == victim).kill()  # noqa: SLF001 - as a crash would

        farm.loop.call(kill)
        wait_until(lambda: victim not in routers() and len(routers()) == 2 and not failures)
        assert len(routers() & before) == 1
        assert caplog.messages.count("a router process cannot be started") == 1
        for _ in range(4):
            assert invoke(host.client())["InvokedProductionVariant"] == "A"
