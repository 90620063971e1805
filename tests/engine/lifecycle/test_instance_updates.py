"""Models whose instance groups change while they serve: the instances that stay are not touched."""

import asyncio
from pathlib import Path

import pytest

from halimede.backends.base import Instance, InstanceSpec
from halimede.backends.batch import Batch
from halimede.config.parse import parse_text
from halimede.core.errors import InvalidArgumentError
from halimede.engine.lifecycle.instance_updates import can_change, change_of
from halimede.engine.lifecycle.loading import WantedInstance
from halimede.engine.loaded_version import LoadedInstance
from halimede.engine.model import Model
from tests.engine.lifecycle.test_lifecycle_serving import IDENTITY, Server, repository, serve
from tests.support.waiting import wait_until_async

__all__ = ["repository"]


class Idle(Instance):
    """An instance that runs nothing."""

    def execute(self, batch: Batch) -> None:
        """Nothing is run."""
        raise AssertionError


def specs(*names: str, kind: str = "KIND_CPU", device: int = 0) -> list[WantedInstance]:
    wanted = (InstanceSpec(name, index, kind, device) for index, name in enumerate(names))
    return [WantedInstance(spec, False) for spec in wanted]


def present(*names: str, kind: str = "KIND_CPU") -> list[LoadedInstance]:
    return [LoadedInstance(each.spec, each.passive, Idle()) for each in specs(*names, kind=kind)]


def changed(before: list[LoadedInstance], after: list[WantedInstance]) -> tuple[list[str], list[str]]:
    """The names of the instances that stay, and of those that are made."""
    change = change_of(before, after)
    numbers = [entry.spec.index for entry in change.kept] + [each.spec.index for each in change.missing]
    assert len(set(numbers)) == len(after)
    return [entry.spec.name for entry in change.kept], [each.spec.name for each in change.missing]


def test_one_more_is_made_and_one_less_is_ended() -> None:
    assert changed(present("g_0", "g_1"), specs("g_0", "g_1", "g_2")) == (["g_0", "g_1"], ["g_2"])
    assert changed(present("g_0", "g_1", "g_2"), specs("g_0")) == (["g_0"], [])


def test_instances_stay_under_another_groups_name() -> None:
    assert changed(present("g_0"), specs("h_0", "h_1")) == (["g_0"], ["h_1"])
    assert changed(present("g_0", "h_0"), specs("h_0", "h_1", "h_2")) == (["h_0", "g_0"], ["h_2"])


def test_a_name_that_is_still_in_use_is_not_given_again() -> None:
    assert changed(present("g_1"), specs("g_0", "g_1", "x_0", "g_1")) == (["g_1"], ["g_0", "x_0", "g_2"])


def test_instances_elsewhere_are_others() -> None:
    assert changed(present("g_0"), specs("g_0", kind="KIND_GPU", device=1)) == ([], ["g_0"])
    passive = [each._replace(passive=True) for each in specs("g_0")]
    assert changed(present("g_0"), passive) == ([], ["g_0"])


def test_instances_that_need_another_share_of_a_resource_are_others() -> None:
    limited = [each._replace(limits=b"gold") for each in specs("g_0", "g_1")]
    assert changed(present("g_0"), limited) == ([], ["g_0", "g_1"])


def model_of(server: Server, name: str) -> Model:
    model = server.lifecycle.find(name)
    assert isinstance(model, Model)
    return model


def instances_of(server: Server, name: str) -> list[Instance]:
    return [entry.instance for entry in model_of(server, name).loaded.instances]


@pytest.mark.parametrize("dynamic", ["", "dynamic_batching { }"])
def test_requests_go_on_while_instances_come_and_go(repository: Path, dynamic: str) -> None:
    config = repository / "echo" / "config.pbtxt"
    config.write_text(f"{IDENTITY}{dynamic}instance_group {{ count: 3 kind: KIND_CPU }}")

    async def test(server: Server) -> None:
        await server.lifecycle.load("echo", {})
        model = model_of(server, "echo")
        before = instances_of(server, "echo")
        traffic = [asyncio.create_task(server.traffic("echo")) for _ in range(8)]
        for count in (4, 2, 5, 1, 3) * 4:
            config.write_text(f"{IDENTITY}{dynamic}instance_group {{ count: {count} kind: KIND_CPU }}")
            await server.lifecycle.load("echo", {})
            after = instances_of(server, "echo")
            assert len(after) == count
            kept = [instance for instance in after if instance in before]
            assert len(kept) == min(count, len(before))
            assert not model._ending, "the load answers when those that go are closed"  # noqa: SLF001 - as below
            await server.more_than(len(server.answers) + 20)
            before = after
        assert model_of(server, "echo") is model, "nothing was loaded again"
        assert model.statistics.success.count >= len(server.answers)
        assert [group.count for group in model.config.instance_group] == [3]
        server.quiet()
        await asyncio.gather(*traffic)
        assert server.failures == []
        await wait_until_async(lambda: not model._ending)  # noqa: SLF001 - what is left is seen only inside

    serve(repository, test)


def test_instances_that_cannot_be_made_leave_those_that_there_are(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = repository / "echo" / "config.pbtxt"

    async def test(server: Server) -> None:
        await server.lifecycle.load("echo", {})
        before = instances_of(server, "echo")
        config.write_text(f"{IDENTITY}instance_group {{ count: 2 kind: KIND_GPU }}")
        with pytest.raises(InvalidArgumentError) as caught:
            await server.lifecycle.load("echo", {})
        why = "Invalid argument: instance group echo_0 of model echo has kind KIND_GPU but no GPUs are available"
        start = f"load failed for model 'echo': version 1 is at READY state: {why}"
        assert caught.value.message.startswith(start)
        (row,) = (row for row in server.lifecycle.index() if row.name == "echo")
        assert row.state == "READY"
        assert row.reason.startswith(why)
        failed = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert [line.partition(why)[0] for line in failed] == ["failed to load 'echo' version 1: "]
        assert instances_of(server, "echo") == before
        assert await server.infer("echo") == 1
        config.write_text(f"{IDENTITY}instance_group {{ count: 2 kind: KIND_CPU }}")
        await server.lifecycle.load("echo", {})
        assert instances_of(server, "echo")[:1] == before
        (row,) = (row for row in server.lifecycle.index() if row.name == "echo")
        assert (row.state, row.reason) == ("READY", "")

    serve(repository, test)


@pytest.mark.parametrize(
    "placed", ['profile: "1"', "secondary_devices { kind: KIND_NVDLA }", 'profile: "1" secondary_devices { }']
)
def test_groups_that_are_placed_in_other_ways_do_not_change(placed: str) -> None:
    plain, other = (
        parse_text(f'name: "m" backend: "identity" instance_group {{ kind: KIND_CPU {each} }}', "test")
        for each in ("count: 2", placed)
    )
    assert can_change(plain, plain, ())
    assert not can_change(plain, other, ())
    assert not can_change(other, plain, ())
