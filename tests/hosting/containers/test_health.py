"""A container that never answers a ping fails its endpoint, which says which one it was."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from halimede.hosting.containers.health import Health
from halimede.hosting.control.controller import Controller
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.routing.meters import NoMeter
from halimede.hosting.routing.table import RoutingTable
from halimede.hosting.substrates.catalogue import Catalogue
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.local import LocalSubstrate
from halimede.hosting.substrates.processes import marked
from tests.hosting.containers.test_supervisor import write_program
from tests.hosting.control.fakes import CALLER, MACHINE, QUICK, ROLE, FakeSource, on_loop, variant
from tests.support.waiting import wait_until_async


async def reason_of(directory: Path, *environments: dict[str, str]) -> str:
    """Why an endpoint fails whose containers have eight seconds to answer a ping."""
    program = write_program(directory)
    substrate = LocalSubstrate(directory / "host", Images(), MACHINE)
    dependencies = Dependencies(
        substrate,
        lambda _: FakeSource(),
        RoutingTable(),
        directory / "fleets",
        Catalogue(MACHINE).resources,
        lambda *_: None,  # type: ignore[arg-type]  # nothing is multi-model
        lambda *_: NoMeter(),
        QUICK,
    )
    controller = Controller(dependencies, directory / "state.db")
    await controller.start()
    try:
        call = controller.operations()
        containers = [{"Image": str(program), "Environment": each} for each in environments]
        await call["CreateModel"](
            {"ModelName": "m", "ExecutionRoleArn": ROLE, "Containers": containers}, CALLER
        )
        one = variant(ContainerStartupHealthCheckTimeoutInSeconds=8)
        config = {"EndpointConfigName": "c", "ProductionVariants": [one]}
        await call["CreateEndpointConfig"](config, CALLER)
        await call["CreateEndpoint"]({"EndpointName": "e", "EndpointConfigName": "c"}, CALLER)
        described = await call["DescribeEndpoint"]({"EndpointName": "e"}, CALLER)
        while described["EndpointStatus"] == "Creating":
            described = await call["DescribeEndpoint"]({"EndpointName": "e"}, CALLER)
        assert described["EndpointStatus"] == "Failed"
        return str(described["FailureReason"])
    finally:
        await controller.stop(leave=False)
        assert not marked(directory)


@on_loop
async def test_a_container_that_does_not_listen(tmp_path: Path) -> None:
    reason = await reason_of(tmp_path, {}, {"SCRIPT": "print('loading', flush=True); time.sleep(1000)"})
    assert reason.startswith(
        "The containers container-1, container-2 for production variant A did not pass the ping health check within 8 "
        "seconds: it answers a ping with status 503: container-2: it accepts no connection (Connection refused)"
    )
    assert "container-2 | loading" in reason


def test_a_ping_that_fails_in_an_unforeseen_way_is_answered_and_so_is_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[tuple[int, bytes]] = []

    class Asked:
        def respond(self, status: int, body: bytes = b"", _headers: object = ()) -> None:
            answers.append((status, body))

    troubles: list[Exception | str] = [ValueError("unforeseen"), ""]

    async def ping(*_: object) -> str:
        trouble = troubles.pop(0)
        if isinstance(trouble, Exception):
            raise trouble
        return trouble

    monkeypatch.setattr("halimede.hosting.containers.health.ping", ping)
    container = SimpleNamespace(name="c", port=1, pool=SimpleNamespace(host="h"))

    @on_loop
    async def run() -> None:
        health = Health([container])  # type: ignore[list-item]
        for count in (1, 2):
            health.answer(Asked())  # type: ignore[arg-type]
            await wait_until_async(lambda count=count: len(answers) == count, "the answer")  # type: ignore[misc]

    run()
    assert answers == [(503, b"c: it cannot be asked: ValueError('unforeseen')"), (200, b"")]
    assert "unforeseen" in caplog.text
