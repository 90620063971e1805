"""Room for instances: memory that is reserved, and updates that need room for both fleets."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.core.gpus import visible_gpus
from halimede.hosting.errors import ApiError
from halimede.hosting.host import Host
from halimede.hosting.settings import HostSettings
from halimede.hosting.substrates.base import Resources
from halimede.hosting.substrates.catalogue import Catalogue, CatalogueError, read_catalogue, this_machine
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import MACHINE, request_for, substrate_in, wait_for, write_serve
from tests.support.clients import Clients
from tests.support.fake_nvml import FakeGpu, machine_with
from tests.support.loops import LoopThread
from tests.support.waiting import wait_until

GIB = 1 << 30
ROLE = "arn:aws:iam::000000000000:role/halimede"


# memory


def catalogue_file(directory: Path, text: str) -> Path:
    path = directory / "types.toml"
    path.write_text(text)
    return path


def test_types_of_a_file_reserve_memory_if_they_say_so(tmp_path: Path) -> None:
    text = """
["ml.a"]
cpus = 1
memory_gib = 5
reserve_memory = true
["ml.b"]
cpus = 1
memory_gib = 5
reserve_memory = false
["ml.c"]
cpus = 1
memory_gib = 64
reserve_memory = true
"""
    catalogue = Catalogue(MACHINE, read_catalogue(catalogue_file(tmp_path, text)))
    reserved = {name: catalogue.resources(name).reserved_bytes for name in catalogue.names}
    # no more than the machine has, and nothing of the types that are there anyway
    assert {name: size for name, size in reserved.items() if size} == {"ml.a": 5 * GIB, "ml.c": 8 * GIB}


@pytest.mark.parametrize("value", ["1", '"yes"', "[]"])
def test_reserve_memory_is_true_or_false(tmp_path: Path, value: str) -> None:
    path = catalogue_file(tmp_path, f'["ml.a"]\ncpus = 1\nmemory_gib = 1\nreserve_memory = {value}\n')
    with pytest.raises(CatalogueError, match="'reserve_memory' must be true or false, got"):
        read_catalogue(path)


@on_loop
async def test_memory_is_reserved_once_and_given_back(tmp_path: Path) -> None:
    program = write_serve(tmp_path)
    reserving, other = Resources(1, 3 * GIB, 0, 3 * GIB), Resources(1, 8 * GIB)
    directory = tmp_path / "host"
    async with substrate_in(directory, leave=True) as (substrate, _):
        # what reserves none is not counted
        requests = [
            request_for(program, number=number, resources=resources)
            for number, resources in enumerate((reserving, reserving, other))
        ]
        left = [await substrate.launch(request) for request in requests]
    async with substrate_in(directory) as (substrate, _):
        assert substrate.free().memory_bytes == 2 * GIB
        with pytest.raises(
            ApiError,
            match=r"that reserves 3 GiB of memory: 2\.0 of the 8\.0 GiB .* are not reserved\. Delete",
        ) as raised:
            await substrate.launch(request_for(program, number=3, resources=reserving))
        assert raised.value.code == "ResourceLimitExceeded"
        await substrate.terminate("i-0")
        await substrate.launch(request_for(program, number=4, resources=reserving))
        assert (substrate.largest().memory_bytes, substrate.free().memory_bytes) == (8 * GIB, 2 * GIB)
    for each in left:
        wait_for(each.pid)


# updates


class World:
    """A host in this process on a machine with so many GPUs, its clients, and a stream of invocations."""

    def __init__(self, loop: LoopThread, directory: Path) -> None:
        self._loop = loop
        self._program = write_serve(directory)
        settings = HostSettings(directory / "host", this_machine(len(visible_gpus())), port=0)

        async def start() -> tuple[Host, int]:
            host = Host(settings)
            return host, await host.start()

        self._host, port = loop.run(start(), 60)
        self.clients = Clients()
        self._url = f"http://127.0.0.1:{port}"
        self.sagemaker = self.clients.make("sagemaker", self._url)

    def close(self) -> None:
        self.clients.close()
        self._loop.run(self._host.stop(), 60)

    def create(self, *counts: int) -> None:
        """A model, and a configuration ``c1``, ``c2``, … for each count of instances with a GPU."""
        self.sagemaker.create_model(
            ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": str(self._program)}
        )
        for number, count in enumerate(counts, 1):
            variant = {
                "VariantName": "A",
                "ModelName": "m",
                "InstanceType": "ml.local.gpu",
                "InitialInstanceCount": count,
            }
            self.sagemaker.create_endpoint_config(
                EndpointConfigName=f"c{number}", ProductionVariants=[variant]
            )

    def settled(self) -> Any:
        """The endpoint when nothing is done to it any more."""
        while True:
            described = self.sagemaker.describe_endpoint(EndpointName="e")
            if described["EndpointStatus"] in ("InService", "Failed"):
                return described

    def asked_during(self, work: Callable[[], Any]) -> Any:
        """What the work returns; invocations go on meanwhile and a while longer, and none may fail."""
        runtime = self.clients.make("sagemaker-runtime", self._url)
        over, failures, answers = threading.Event(), list[ClientError](), list[bytes]()

        def ask() -> None:
            while not over.is_set():
                try:
                    with runtime.invoke_endpoint(EndpointName="e", Body=b"x")["Body"] as body:
                        answers.append(body.read())
                except ClientError as error:
                    failures.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            result = work()
            number = len(answers)
            wait_until(lambda: len(answers) >= number + 20 or failures, "answers")
        finally:
            over.set()
            asking.join()
        assert not failures
        assert set(answers) == {b"OK"}
        return result


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[World]:
    (tmp_path / "dev").mkdir()
    machine_with(monkeypatch, tmp_path / "dev", [FakeGpu(f"GPU-{number}") for number in range(request.param)])
    with LoopThread() as loop:
        running = World(loop, tmp_path)
        try:
            yield running
        finally:
            running.close()


@pytest.mark.parametrize("world", [1, 3], indirect=True)
def test_an_update_that_finds_no_gpus_says_what_to_do_and_the_old_instances_go_on(world: World) -> None:
    world.create(1, 3)
    world.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c1")
    assert world.settled()["EndpointStatus"] == "InService"

    def update() -> Any:
        world.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="c2")
        return world.settled()

    described = world.asked_during(update)
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c1")
    reason = described["FailureReason"]
    assert reason.startswith("no room for another instance of 1 GPUs: 0 of the ")
    assert "lower instance counts" in reason
    assert "An update starts its instances beside those that serve and needs room for both" in reason
    assert "delete the endpoint and create it anew" in reason
    # what it says helps
    world.sagemaker.delete_endpoint(EndpointName="e")
    world.sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="e", WaiterConfig={"Delay": 1})
    world.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c1")
    assert world.settled()["EndpointStatus"] == "InService"


@pytest.mark.parametrize("world", [2], indirect=True)
def test_an_update_with_gpus_for_both_fleets_loses_no_request(world: World) -> None:
    world.create(1, 1)
    world.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c1")
    assert world.settled()["EndpointStatus"] == "InService"
    for config in ("c2", "c1", "c2"):

        def update(config: str = config) -> Any:
            world.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName=config)
            return world.settled()

        described = world.asked_during(update)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", config)
        assert "FailureReason" not in described
    # at once, though the instance that was replaced may not have ended
    desired = [{"VariantName": "A", "DesiredInstanceCount": 2}]
    world.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="e", DesiredWeightsAndCapacities=desired
    )
    (variant,) = world.settled()["ProductionVariants"]
    assert variant["CurrentInstanceCount"] == 2
