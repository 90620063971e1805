"""A control plane in a test: its state is on disk, its instances are servers in this process."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, ParamSpec

import pytest
import uvloop

from halimede.hosting.control.controller import Controller
from halimede.hosting.control.database import Database
from halimede.hosting.control.endpoint import Endpoint
from halimede.hosting.control.guests import Guest
from halimede.hosting.control.settings import ControlSettings, Dependencies
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller, EndpointId
from halimede.hosting.metering.alarms.alarm import Alarm
from halimede.hosting.metering.alarms.metric_definition import metric_definition
from halimede.hosting.metering.alarms.states import AlarmState
from halimede.hosting.metering.pace import Pace
from halimede.hosting.routing.meters import NoMeter
from halimede.hosting.routing.table import EndpointRoute, Residency, RoutingTable, Target, VariantRoute
from halimede.hosting.routing.taps import Observer
from halimede.hosting.specs import Variant
from halimede.hosting.store.source import ObjectInfo, Offer, OnProgress
from halimede.hosting.substrates.base import (
    InstanceRequest,
    ModelArchive,
    ModelFiles,
    OnExit,
    Resources,
    RunningInstance,
)
from halimede.hosting.substrates.catalogue import Catalogue
from halimede.hosting.substrates.use import InstanceUse
from tests.support.waiting import wait_until_async

P = ParamSpec("P")

CALLER = Caller()
ROLE = "arn:aws:iam::000000000000:role/x"
URL = "s3://bucket/model.tar.gz"
MACHINE = Resources(4, 8 << 30)

QUICK = ControlSettings(
    first_ping_s=0.005,
    ping_s=0.02,
    ping_timeout_s=5.0,  # longer than this process may be held up
    failed_pings=2,
    drain_s=5.0,
    starts=2,
    grace_s=1.0,
    backoff_s=0.01,
    longest_backoff_s=0.05,
    look_s=0.005,
    describe_hold_s=60.0,
)


def on_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """The test, run on an event loop until it ends."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def limited() -> None:
            async with asyncio.timeout(100):
                await test(*args, **kwargs)

        uvloop.run(limited())

    return run


def set_writable(database: Database, writable: bool) -> None:
    """Let a database be written, or only be read, as on a disk that is full."""
    connection = database._connection  # noqa: SLF001 - SQLite refuses to write what it is told not to
    assert connection is not None
    pragma = f"PRAGMA query_only = {'OFF' if writable else 'ON'}"
    database._thread.submit(connection.execute, pragma).result()  # noqa: SLF001 - the only thread that may


class FakeInstance:
    """A server that answers pings.

    Attributes:
        running: what the substrate says of it.
        ping: the status that it answers a ping with; 0 for no answer.
        pings: how many it has got.
    """

    pings = 0

    def __init__(self, request: InstanceRequest, ping: int) -> None:
        self.ping = ping
        self._request = request
        self._server: asyncio.Server
        self._writers: set[asyncio.StreamWriter] = set()
        self.running: RunningInstance

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.running = RunningInstance(self._request, "127.0.0.1", port, next(_PIDS))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.pings += 1
            if self.ping:
                writer.write(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % self.ping)
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def close(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()


class FakeSubstrate:
    """Instances that are servers of this process; they outlive the controllers that started them.

    Attributes:
        instances: those that run, by id.
        launched: what has ever been launched.
        refusal: what a launch fails with.
        ping: the status that new instances answer a ping with.
        die: so many of the next instances end at once.
        gate: launches wait for it.
        shortage: why there is no room.
    """

    def __init__(self) -> None:
        self.instances: dict[str, FakeInstance] = {}
        self.shortage = ""
        self.launched: list[InstanceRequest] = []
        self.refusal: Exception | None = None
        self.ping = 200
        self.die = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._on_exit: OnExit

    async def open(self) -> str:
        return ""

    async def start(self, on_exit: OnExit) -> Sequence[RunningInstance]:
        self._on_exit = on_exit
        return [instance.running for instance in self.instances.values()]

    async def prepare(self, archive: ModelArchive) -> None:
        await archive.extracted()

    async def launch(
        self,
        request: InstanceRequest,
        variables: Mapping[str, str] | None = None,
        archives: Mapping[str, ModelArchive] | None = None,
    ) -> RunningInstance:
        request = request.with_models(
            {name: await archive.extracted() for name, archive in (archives or {}).items()}
        )
        self.launched.append(request)
        assert variables in ({"OF": request.fleet}, None)
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        instance = FakeInstance(request, self.ping)
        await instance.open()
        self.instances[request.id] = instance
        if self.die > 0:
            self.die -= 1
            asyncio.get_running_loop().call_soon(self.kill, request.id, "it ended with status 3")
        return instance.running

    def kill(self, instance_id: str, reason: str = "it was killed") -> None:
        """The instance ends by itself."""
        instance = self.instances.pop(instance_id, None)
        if instance is not None:
            instance.close()
            self._on_exit(instance_id, reason)

    def kill_unseen(self, instance_id: str) -> None:
        """The instance ends while there is no controller."""
        self.instances.pop(instance_id).close()

    def files(self, instance: RunningInstance) -> ModelFiles:
        raise NotImplementedError

    async def usage(self) -> Mapping[str, InstanceUse]:
        return {}

    async def failure(self, instance_id: str) -> str:
        return "; its last lines: waiting for a licence"

    async def terminate(self, instance_id: str, grace_s: float = 30.0) -> None:
        await asyncio.sleep(0.001)  # sleeps: the end of a process
        instance = self.instances.pop(instance_id, None)
        if instance is not None:
            instance.close()

    def waiting(self, instance_id: str) -> str:
        return self.shortage

    def largest(self) -> Resources:
        return MACHINE

    async def stop(self, *, leave: bool) -> None:
        if not leave:
            for name in list(self.instances):
                await self.terminate(name)

    def of(self, variant: str = "A") -> list[str]:
        """The ids of the instances of a variant."""
        return [name for name, each in self.instances.items() if each.running.request.variant == variant]


class FakeSource:
    """Any archive is there, unless `failure` says otherwise.

    Attributes:
        fetched: what was fetched.
        failure: what fetching fails with.
        gate: fetches wait for it.
    """

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def describe(self, url: str) -> ObjectInfo:
        return ObjectInfo(1, "e")

    async def offer(self, url: str) -> Offer:
        return Offer("http://127.0.0.1:1/", 1, "e", url)

    async def fetch_model(self, url: str, directory: Path, timeout_s: float, on_progress: OnProgress) -> int:
        self.fetched.append(url)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        directory.mkdir()  # noqa: ASYNC240 - of a test
        (directory / "config.pbtxt").touch()
        on_progress(1, 1)
        return 1


_PIDS = count((1 << 22) + 1)
"""No process of Linux has one of these."""


class World:
    """A controller and what it is given. Made on the event loop; `async with` starts and stops it.

    Attributes:
        controller: the one of now.
        table: where its requests go.
        residencies: those that were made and not closed.
        deleted: endpoints that are no more.
        alarms: those that there are, by name.
        roles: fleet and variant of the roles that have begun and not ended.
        observed: the variants whose invocations have been looked at.
        is_capture_stopped: nothing is captured.
        guest: has fleets of its own, from the next start on.
    """

    def __init__(self, directory: Path, settings: ControlSettings = QUICK, **further: Any) -> None:
        """A world; `further` are dependencies of the controller in place of the usual ones."""
        self._further = further
        self.directory = directory
        self.substrate = FakeSubstrate()
        self.source = FakeSource()
        self.table = RoutingTable()
        self.residencies: set[FakeResidency] = set()
        self.settings = settings
        self.deleted: list[str] = []
        self.alarms: dict[str, Alarm] = {}
        self.roles: set[tuple[str, str]] = set()
        self.observed: list[Variant] = []
        self.is_capture_stopped = False
        self.guest: Guest | None = None
        self.controller: Controller

    async def __aenter__(self) -> "World":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.substrate.gate.set()
        self.source.gate.set()
        await self.controller.stop(leave=False)
        assert not self.substrate.instances
        assert not self.table.routes()
        assert not self.residencies
        left = asyncio.all_tasks() - {asyncio.current_task()}
        await wait_until_async(lambda: all(task.done() for task in left), "the end of all tasks")

    async def start(self) -> None:
        self.table = RoutingTable()
        self.roles.clear()  # what holds is known to one process
        self.controller = Controller(self.dependencies(), self.directory / "state.db")
        if self.guest is not None:
            self.controller.attach(self.guest)
        await self.controller.start()

    def dependencies(self) -> Dependencies:
        """What the controller is given."""
        usual = Dependencies(
            self.substrate,
            lambda _: self.source,
            self.table,
            self.directory / "fleets",
            Catalogue(MACHINE).resources,
            lambda _, route: FakeResidency(self, route),
            lambda *_: NoMeter(),
            self.settings,
            lambda endpoint: self.deleted.append(endpoint.name),
            begin_role=self._begin_role,
            end_role=lambda *role: self.roles.discard(role),
            alarm=lambda scope, name: self.alarms.get(name) if scope == CALLER.scope else None,
            observers=self._observers,
            is_capture_stopped=lambda: self.is_capture_stopped,
        )
        return replace(usual, **self._further)

    def put_alarm(self, name: str, state: AlarmState = AlarmState.OK) -> Alarm:
        """Have an alarm in a state."""
        query = {"MetricName": "m", "Namespace": "n", "Statistic": "Sum", "Period": 60}
        document = {
            **query,
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": 1,
            "EvaluationPeriods": 1,
        }
        alarm = Alarm(CALLER.scope, name, document, metric_definition(document, Pace()), 0.0)
        alarm.state, alarm.reason = state, "1 datapoint was greater than the threshold"
        if state is AlarmState.ALARM:
            alarm.alarmed = self.dependencies().now()
        self.alarms[name] = alarm
        return alarm

    def _observers(self, _: EndpointId, variant: Variant) -> Sequence[Observer]:
        self.observed.append(variant)
        return ()

    def _begin_role(self, _: EndpointId, fleet: str, variant: Variant) -> Mapping[str, str]:
        self.roles.add((fleet, variant.name))
        return {"OF": fleet}

    async def restart(self) -> None:
        """Another controller takes over; the instances run on."""
        await self.controller.stop(leave=True)
        await self.start()

    async def call(self, operation: str, **request: Any) -> Mapping[str, Any]:
        return await self.controller.operations()[operation](request, CALLER)

    def endpoint(self, name: str = "e") -> Endpoint:
        """An endpoint of the caller's."""
        return self.endpoints[EndpointId(*CALLER.scope, name)]

    @property
    def endpoints(self) -> Mapping[EndpointId, Endpoint]:
        """All endpoints that the controller has, those that are being deleted as well."""
        return self.controller._endpoints  # noqa: SLF001 - their states are what tests are about

    def set_writable(self, writable: bool) -> None:
        """Let the database be written, or only be read, as on a disk that is full."""
        set_writable(self.controller._database, writable)  # noqa: SLF001 - has no trouble by itself

    def route(self, name: str = "e") -> EndpointRoute | None:
        """Where requests for an endpoint of the caller's go."""
        return self.table.find(*CALLER.scope, name)

    async def refused(self, operation: str, **request: Any) -> str:
        """The text with which an operation is refused."""
        with pytest.raises(ApiError) as raised:
            await self.call(operation, **request)
        assert raised.value.code == "ValidationException"
        return raised.value.message

    # what most tests need

    async def create_model(self, name: str = "m", **container: Any) -> None:
        document = {"Image": "halimede", "ModelDataUrl": URL, **container}
        await self.call("CreateModel", ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=document)

    async def create_config(self, name: str = "c", *variants: dict[str, Any], **further: Any) -> None:
        request = {"EndpointConfigName": name, "ProductionVariants": list(variants or [variant()]), **further}
        await self.call("CreateEndpointConfig", **request)

    async def create_endpoint(self, name: str = "e", config: str = "c") -> None:
        await self.call("CreateEndpoint", EndpointName=name, EndpointConfigName=config)

    async def serve(self, *variants: dict[str, Any]) -> None:
        """Have an endpoint ``e`` of configuration ``c`` and model ``m`` in service."""
        await self.create_model()
        await self.create_config("c", *variants)
        await self.create_endpoint()
        assert await self.status() == "InService"

    async def describe(self, name: str = "e") -> Mapping[str, Any]:
        return await self.call("DescribeEndpoint", EndpointName=name)

    async def status(self, name: str = "e") -> str:
        """The state in which the endpoint settles."""
        status: str = (await self.describe(name))["EndpointStatus"]
        return status

    def now(self, name: str = "e") -> str:
        """The state in which the endpoint is."""
        return str(self.endpoint(name).record.status)

    def targets(self, variant: str = "A", name: str = "e") -> list[Target]:
        """The instances that take requests."""
        route = self.route(name)
        return [] if route is None else list(route.variants[variant].targets)


class FakeResidency:
    """Holds nothing; knows its instances."""

    def __init__(self, world: World, route: VariantRoute) -> None:
        self._world = world
        self.targets: list[str] = []
        world.residencies.add(self)

    def place(self, model: str, deadline_ns: int, on_placed: Any) -> None:
        return None

    def cancel(self, on_placed: Any) -> None:
        pass

    def joined(self, target: Target, instance: RunningInstance) -> None:
        self.targets.append(target.id)

    def left(self, target: Target) -> None:
        self.targets.remove(target.id)

    def loaded_counts(self) -> Mapping[str, int]:
        return dict.fromkeys(self.targets, 0)

    async def close(self) -> None:
        self._world.residencies.discard(self)


_: type[Residency] = FakeResidency


def refusal(check: Callable[..., object], *arguments: Any) -> str:
    """The text with which a check refuses something; "" if it does not."""
    try:
        check(*arguments)
    except ApiError as error:
        return error.message
    return ""


def variant(name: str = "A", count: int = 1, **further: Any) -> dict[str, Any]:
    """A production variant."""
    return {
        "VariantName": name,
        "ModelName": "m",
        "InstanceType": "ml.local.cpu",
        "InitialInstanceCount": count,
        **further,
    }
