"""Router processes that come, go and hang, and the table that they share."""

import gc
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from halimede.hosting.routing.table import Target, VariantRoute
from halimede.http1.upstream import UpstreamPool
from tests.hosting.instances import FakeInstance, Received, Reply, echo
from tests.hosting.routing.serving import (
    ENDPOINT,
    PROCESSES,
    Farm,
    Runtime,
    endpoint_route,
    instances,
    invoke,
    runtime,
    variant_route,
)
from tests.support.stopping import stop
from tests.support.waiting import wait_until


@contextmanager
def shared(count: int = 1, **spec: bool) -> Iterator[tuple[Runtime, Farm, list[FakeInstance]]]:
    """A runtime, its routers and its instances."""
    with instances(count) as made, runtime(variant_route("A", made, **spec)) as host:
        farm = PROCESSES.farm
        # urllib3 closes the connections of a pool once nothing refers to it, as the tracebacks of caught errors may do
        gc.collect()
        wait_until(lambda: connections(farm) == [0, 0])
        yield host, farm, made


def connections(farm: Farm) -> list[int]:
    """How many connections each router has that takes some."""
    return farm.loop.call(lambda: [link.connections for link in farm.routers._links if link.is_ready])  # noqa: SLF001 - how connections are spread shows nowhere else


def processes(farm: Farm) -> list[int]:
    return sorted(farm.loop.call(lambda: farm.routers.processes))


class Load:
    """Invokes over and over, on connections of its own."""

    def __init__(self, host: Runtime, threads: int = 8) -> None:
        self._stopped = threading.Event()
        self._host = host
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        self.answers: Counter[str] = Counter()

    def __enter__(self) -> "Load":
        for each in self._threads:
            each.start()
        wait_until(lambda: self.answers["200"] > 50)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for each in self._threads:
            each.join(60)

    def _run(self) -> None:
        client = self._host.client()
        while not self._stopped.is_set():
            try:
                invoke(client)
            except (ClientError, BotoCoreError) as error:
                self.answers[repr(error)] += 1
            else:
                self.answers["200"] += 1

    def go_on(self, answers: int) -> None:
        """Return when so many more requests have been answered."""
        before = self.answers["200"]
        wait_until(lambda: self.answers["200"] > before + answers)

    @property
    def failures(self) -> int:
        return sum(self.answers.values()) - self.answers["200"]


class TestARouterThatIsKilled:
    def test_only_its_connections_fail_and_another_one_takes_its_place(self) -> None:
        with shared() as (host, farm, _):
            before = processes(farm)
            with Load(host, 8) as load:
                os.kill(before[0], signal.SIGKILL)
                wait_until(lambda: len(processes(farm)) == 2 and before[0] not in processes(farm))
                load.go_on(50)
            assert before[1] in processes(farm)
            assert load.failures <= 4  # half of the connections, once each

    def test_its_requests_are_in_flight_no_more(self) -> None:
        held = threading.Event()
        with shared() as (host, farm, [instance]), ThreadPoolExecutor(4) as threads:
            instance.invoke = lambda received: held.wait(60) and echo(received)  # type: ignore[assignment,return-value]
            futures = [threads.submit(_suppressed, host) for _ in range(4)]
            target = host.targets[0]
            wait_until(lambda: target.outstanding == 4)
            victim, _ = processes(farm)
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: target.outstanding == 2)
            held.set()
            answers = [future.result(60) for future in futures]
            assert sorted(answers) == [False, False, True, True]
            wait_until(lambda: host.is_idle)
            wait_until(lambda: len(processes(farm)) == 2)

    def test_an_instance_that_leaves_is_idle_without_it(self) -> None:
        held = threading.Event()
        with shared() as (host, farm, [instance]), ThreadPoolExecutor(2) as threads:
            instance.invoke = lambda received: held.wait(60) and echo(received)  # type: ignore[assignment,return-value]
            futures = [threads.submit(_suppressed, host) for _ in range(2)]
            target = host.targets[0]
            wait_until(lambda: target.outstanding == 2)
            idle = _drained(host, target)
            for each in processes(farm):
                os.kill(each, signal.SIGKILL)
            assert idle.wait(60)
            held.set()
            for future in futures:
                future.result(60)
            wait_until(lambda: len(processes(farm)) == 2)

    def test_the_new_one_has_the_whole_table(self) -> None:
        with shared(2) as (host, farm, made):
            for each in processes(farm):
                os.kill(each, signal.SIGKILL)
            wait_until(lambda: not processes(farm))
            wait_until(lambda: len(processes(farm)) == 2)
            client = host.client()
            for _ in range(40):
                invoke(client)
            assert all(len(each.seen) > 5 for each in made)

    def test_meanwhile_the_hosts_own_process_answers(self) -> None:
        with shared() as (host, farm, _):
            for each in processes(farm):
                os.kill(each, signal.SIGKILL)
            wait_until(lambda: not processes(farm))
            for _ in range(10):
                with host.raw() as client:
                    assert (
                        client.ask(
                            f"POST /endpoints/{ENDPOINT}/invocations HTTP/1.1\r\nContent-Length: 0\r\n\r\n".encode()
                        ).status
                        == 200
                    )
            wait_until(lambda: len(processes(farm)) == 2)


@pytest.mark.parametrize("with_change", [True, False])
def test_a_router_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, with_change: bool) -> None:
    monkeypatch.setattr("halimede.hosting.routers.link._PATIENCE_S", 2.0)
    monkeypatch.setattr("halimede.hosting.routers.routers._HEARTBEAT_S", 0.1)
    with shared() as (host, farm, _):
        before = processes(farm)
        stop(before[0])
        if with_change:
            host.settle()
        wait_until(lambda: len(processes(farm)) == 2 and before[0] not in processes(farm))
        monkeypatch.undo()
        invoke(host.client())


class TestTheTable:
    def test_all_routers_have_a_change_once_it_has_settled(self) -> None:
        with shared() as (host, _, _), instances(1) as [other]:
            clients = [host.client() for _ in range(6)]  # of both routers
            for number in range(20):
                wanted = variant_route(f"V{number}", [other])
                host.loop.call(host.table.publish, endpoint_route(wanted))
                host.settle()
                assert {invoke(each)["InvokedProductionVariant"] for each in clients} == {f"V{number}"}
                for target in list(wanted.targets):
                    host.loop.call(host.table.leave, wanted, target)

    def test_an_endpoint_that_is_replaced_under_load_fails_no_request(self) -> None:
        with shared() as (host, _, [first]), instances(1) as [second], Load(host) as load:
            current, fakes = host.variant, [first, second]
            for number in range(10):
                fake = fakes[(number + 1) % 2]
                route = variant_route("A", [fake])
                host.loop.call(host.table.publish, endpoint_route(route))
                host.settle()
                for target in list(current.targets):
                    assert _drained(host, target, current).wait(10)
                await_requests(fake, 5)
                current = route
            assert load.failures == 0
            host.route = endpoint_route(current)

    def test_an_instance_that_comes_under_load_is_used_and_one_that_goes_is_drained(self) -> None:
        with shared() as (host, _, _), instances(1) as [other], Load(host) as load:
            for _ in range(5):
                target = Target("other", UpstreamPool("127.0.0.1", other.port))
                host.loop.call(host.table.join, host.variant, target)
                await_requests(other, 10)
                assert _drained(host, target).wait(10)
                seen = len(other.seen)
                load.go_on(20)
                assert len(other.seen) == seen  # once it is idle nothing comes any more
            assert load.failures == 0

    def test_an_instance_is_not_idle_before_its_requests_are_answered(self) -> None:
        held = threading.Event()
        with shared() as (host, _, [instance]), ThreadPoolExecutor(3) as threads:
            instance.invoke = lambda received: Reply(200, str(held.wait(60)).encode())
            clients = [host.client() for _ in range(3)]
            futures = [threads.submit(invoke, client) for client in clients]
            target = host.targets[0]
            wait_until(lambda: target.outstanding == 3)
            idle = _drained(host, target)
            host.settle()
            assert not idle.is_set()
            with pytest.raises(ClientError, match="has no instance that takes requests"):
                invoke(host.client())
            held.set()
            assert [future.result(60)["Body"].read() for future in futures] == [b"True"] * 3
            assert idle.wait(60)

    def test_weights_change_in_all_routers(self) -> None:
        with (
            instances(2) as [one, two],
            runtime(variant_route("A", [one]), variant_route("B", [two], 0.0)) as host,
        ):
            clients = [host.client() for _ in range(4)]
            assert {invoke(client)["InvokedProductionVariant"] for client in clients} == {"A"}
            variants = host.route.variants
            host.loop.call(host.table.weigh, variants["A"], 0.0)
            host.loop.call(host.table.weigh, variants["B"], 1.0)
            host.settle()
            assert {invoke(client)["InvokedProductionVariant"] for client in clients} == {"B"}

    def test_what_is_gone_is_forgotten(self) -> None:
        with shared() as (host, farm, _):
            publisher, counts = farm.routers._publisher, farm.routers._counts  # noqa: SLF001 - that nothing piles up shows nowhere else
            for _ in range(50):
                route = variant_route("A", [])
                route.targets.append(Target("i", UpstreamPool("127.0.0.1", 1)))
                host.loop.call(host.table.publish, endpoint_route(route))
                host.loop.call(host.table.leave, route, route.targets[0])
            host.loop.call(host.table.publish, host.route)
            host.settle()
            assert len(publisher._by_number) == len(publisher._variants) == 1  # noqa: SLF001 - that nothing piles up shows nowhere else
            assert not publisher._leaving  # noqa: SLF001 - that nothing piles up shows nowhere else
            assert counts._next - 1 - len(counts._free) == 1  # noqa: SLF001 - that nothing piles up shows nowhere else


def test_requests_in_flight_count_over_all_routers() -> None:
    held, begun = threading.Event(), threading.Semaphore(0)

    def hold(received: Received) -> Reply:
        begun.release()
        held.wait(60)
        return echo(received)

    with shared(2, least_outstanding=True) as (host, _, made), ThreadPoolExecutor(12) as threads:
        for each in made:
            each.invoke = hold
        futures = []
        for number in range(12):  # each on a connection of its own, one router after the other
            futures.append(threads.submit(invoke, host.client()))
            assert begun.acquire(timeout=60)
            assert sum(target.outstanding for target in host.targets) == number + 1
        assert [len(each.seen) for each in made] == [6, 6]
        held.set()
        for future in futures:
            future.result(60)
        wait_until(lambda: host.is_idle)


def test_every_request_is_counted_once() -> None:
    with shared() as (host, _, _), ThreadPoolExecutor(8) as threads:
        clients = [host.client() for _ in range(8)]
        list(threads.map(lambda number: invoke(clients[number % 8]), range(400)))
        assert host.meter.sent_to == [1] * 400
        assert host.meter.answers == [(200, False)] * 400


def test_stopping_ends_the_processes_when_what_was_asked_is_answered() -> None:
    with shared() as (host, farm, [instance]), ThreadPoolExecutor(1) as threads:
        held = threading.Event()
        instance.invoke = lambda _: Reply(200, str(held.wait(60)).encode())
        future = threads.submit(invoke, host.client())
        wait_until(lambda: host.targets[0].outstanding == 1)
        pids = processes(farm)
        with ThreadPoolExecutor(1) as stopping:
            stopped = stopping.submit(lambda: farm.loop.run(farm.routers.stop(5.0)))
            wait_until(lambda: not processes(farm))
            held.set()
            assert future.result(60)["Body"].read() == b"True"
            stopped.result(60)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, 0)
                pytest.fail(f"process {pid} runs on")


def _suppressed(host: Runtime) -> bool:
    """Whether an invocation, on a connection of its own, has been answered."""
    try:
        invoke(host.client(read_timeout=15))
    except (ClientError, BotoCoreError):
        return False
    return True


def await_requests(instance: FakeInstance, count: int) -> None:
    """Return when an instance has got so many more requests."""
    before = len(instance.seen)
    wait_until(lambda: len(instance.seen) > before + count)


def _drained(host: Runtime, target: Target, variant: VariantRoute | None = None) -> threading.Event:
    """Do with an instance what the control plane does that retires it; the event is set when it is idle."""
    idle = threading.Event()

    def drain() -> None:
        target.draining = True
        host.table.leave(variant or host.variant, target)
        target.on_idle = idle.set
        if not target.inflight:
            idle.set()

    host.loop.call(drain)
    return idle
