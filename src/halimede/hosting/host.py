"""The host: all its parts, started and stopped together. Lives on the event loop."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from halimede.core.cpus import lower_priority
from halimede.core.origins import OriginPolicy, is_local
from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.program_images import ProgramImageGate, ProgramImages
from halimede.hosting.access.roles import InstanceRoles
from halimede.hosting.access.web_pages import WebPageGuard
from halimede.hosting.addresses import is_wildcard, url_of
from halimede.hosting.api.dispatcher import Dispatcher
from halimede.hosting.api.iam import iam_service
from halimede.hosting.api.services import Service
from halimede.hosting.api.sts import sts_service
from halimede.hosting.asynchronous.asynchronous import Asynchronous
from halimede.hosting.asynchronous.requests import Notice
from halimede.hosting.capture.capture import Capture
from halimede.hosting.capture.settings import capture_directory
from halimede.hosting.console.pages import HostConsole
from halimede.hosting.console.sources import Sources
from halimede.hosting.control.controller import Controller
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.experiments.experiments import Experiments
from halimede.hosting.fetches import Fetches, ObservedSource
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.http.request import Request
from halimede.hosting.http.reserve import refuse_all_but_ping
from halimede.hosting.identity import Caller, EndpointId
from halimede.hosting.lock import DirectoryLock
from halimede.hosting.metering.alarms.alarms import Alarms
from halimede.hosting.metering.alarms.operations import alarm_operations, alarms_about
from halimede.hosting.metering.cloudwatch import cloudwatch_service
from halimede.hosting.metering.container_metrics import ContainerMetrics
from halimede.hosting.metering.logs import logs_service
from halimede.hosting.metering.metering import Metering
from halimede.hosting.migration import take_over
from halimede.hosting.monitoring.monitoring import Monitoring
from halimede.hosting.notifications.delivery import PAGE
from halimede.hosting.notifications.notifications import Notifications
from halimede.hosting.notifications.operations import SnsOperations
from halimede.hosting.pages import pages
from halimede.hosting.routers.routers import Routers
from halimede.hosting.routing.invocations import Invocations
from halimede.hosting.routing.residency.residency import MultiModelResidency
from halimede.hosting.routing.sessions import Sessions
from halimede.hosting.routing.table import RoutingTable, VariantRoute
from halimede.hosting.scaling.autoscaling import Autoscaling
from halimede.hosting.settings import HostSettings
from halimede.hosting.shadows.copies import Copies
from halimede.hosting.shadows.settings import ShadowSettings
from halimede.hosting.specs import Variant
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.objects import Objects
from halimede.hosting.store.offers import OfferService, OfferTokens
from halimede.hosting.store.s3_service import S3Service
from halimede.hosting.store.sources import model_source
from halimede.hosting.substrates.catalogue import Catalogue
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.local import LocalSubstrate
from halimede.hosting.substrates.ray.substrate import RaySubstrate
from halimede.hosting.transform.service import make_transforms
from halimede.net.connection_limit import ConnectionLimit
from halimede.net.receiving import ReceiveBudget
from halimede.net.server import Connections, Endpoint, Server

_GRACE_S = 5.0
"""What has been asked may take so long to be answered when the host stops."""

_CPU_FALLBACK = "SAGEMAKER_TRITON_CPU_FALLBACK"
"""The variable by which instances of this package's server run models for GPUs on processors."""

_STARTING = b"the host is starting\n"


class Host:
    """SageMaker's hosting service on this machine."""

    def __init__(self, settings: HostSettings) -> None:
        """A host that is not started; there must be an event loop.

        Raises:
            ApiError: a setting cannot be used.
        """
        self._settings = settings
        directory = settings.directory
        images = Images(
            settings.image_rules,
            settings.image_rules_file,
            programs=settings.program_images is not ProgramImages.NONE,
        )
        self._substrate = (
            LocalSubstrate(directory, images, settings.machine, settings.oversubscription)
            if settings.ray is None
            else RaySubstrate(
                directory,
                images,
                settings.oversubscription,
                settings.ray,
                only_here=is_local(settings.advertised or settings.address),
            )
        )
        self._catalogue = Catalogue(settings.machine, settings.instance_types, self._substrate.largest)
        self._table = RoutingTable()
        self._metering = Metering(
            directory / "metrics.db",
            directory / "logs",
            self._substrate.instances,
            self._substrate.usage,
            self._table,
            log_settings=settings.logs,
            pace=settings.pace,
        )
        self._container_metrics = ContainerMetrics(self._substrate.instances, self._metering.stores)
        self._alarms = Alarms(directory / "alarms.db", self._metering.stores, pace=settings.pace)
        self._fetches = Fetches(directory / "logs")
        self._store = ObjectStore(directory / "store")
        self._offers = OfferTokens(directory / "offers.key")
        self._places = model_source(self._store, self._offers, settings.s3_endpoint, settings.buckets)
        self._roles = InstanceRoles(directory / "roles.key")
        self._capture = Capture(
            capture_directory(directory),
            settings.capture,
            lambda account: Objects(self._places, account),
            self._metering.meter,
            lambda endpoint, variant, counts: self._metering.absorb(endpoint, variant, "", counts),
        )
        self._copies = Copies(ShadowSettings.of(settings.invocation), is_idle=settings.router_processes > 1)
        dependencies = Dependencies(
            self._substrate,
            self._places.of,
            self._table,
            directory / "fleets",
            self._catalogue.resources,
            self._make_residency,
            self._metering.meter,
            settings.control,
            self._forget,
            self._fetches.begin,
            self._platform_variables,
            self._roles.end,
            self._check_update,
            self._alarms.find,
            observers=self._capture.observers,
            is_capture_stopped=lambda: self._capture.is_stopped,
            make_shadow=self._copies.observer,
            lower_priority=lambda pid: asyncio.get_running_loop().run_in_executor(None, lower_priority, pid),
        )
        self._controller = Controller(dependencies, directory / "state.db")
        self._transforms = make_transforms(
            directory, dependencies, self._controller, self._places, self._fetches
        )
        self._autoscaling = Autoscaling(
            directory / "scaling.db", self._controller, self._alarms, settings.pace.seconds
        )
        self._experiments = Experiments(directory / "experiments.db", self._controller)
        self._monitoring = Monitoring(
            directory,
            self._controller,
            partial(Objects, self._places),
            self._metering.stores,
            settings.pace.seconds,
        )
        self._url = ""
        self._notifications = Notifications(
            directory / "topics.db",
            directory / "notifications",
            lambda: self._url,
            loopback=settings.loopback_subscriptions,
        )
        self._sns = SnsOperations(self._notifications)
        self._asynchronous = Asynchronous(
            directory / "async.db",
            self._table,
            lambda account: Objects(self._places, account),
            self._metering.stores.of,
            self._publish,
        )
        self._sessions = Sessions()
        self._invocations = Invocations(self._table, settings.invocation, self._sessions)
        self._denials = Denials()
        gate = Gate(settings.keys, settings.caller, issued=self._roles.find)
        self._console = HostConsole(
            gate,
            Sources(
                self._controller,
                self._table,
                self._metering,
                self._substrate.instances,
                self._asynchronous.backlogs,
                self._copies.pending if settings.router_processes == 1 else None,
                alarm_operations(self._alarms),
                self._autoscaling.service().operations["DescribeScalingActivities"],
                logs_service(directory / "logs").operations,
                partial(Objects, self._places),
            ),
        )
        self._dispatcher = Dispatcher(
            gate,
            self.services(),
            self._invocations,
            S3Service(self._store, denied=self._denials.note),
            {
                **pages(self._table, self._metering, self._asynchronous.backlogs),
                **(self._console.pages() if settings.console else {}),
                PAGE: self._sns.visit,
            },
            # clients, instances among them, reach the host by the name that it listens at
            WebPageGuard(OriginPolicy((settings.address, *settings.allowed_hosts), settings.allowed_origins)),
            ProgramImageGate(settings.program_images, images.is_program),
            self._denials,
            OfferService(self._offers, self._places, self._store, self._denials.note).handle,
            self._asynchronous,
        )
        self._routers: Routers | None = None
        if settings.router_processes > 1:
            self._routers = Routers(settings, self._table, self._roles, self._metering.absorb, self._sessions)
        self._server = Server()
        self._connections: Connections[ClientConnection] = Connections()
        self._parts = AsyncExitStack()  # what has been started
        self._is_ready = False
        self._keep_instances = False

    def services(self) -> list[Service]:
        """Those of the JSON and query protocols."""
        return [
            Service(
                "sagemaker",
                {
                    **self._monitoring.operations(self._controller.operations()),
                    **self._experiments.operations(),
                    **self._transforms.operations(),
                },
                further={
                    "ProductionVariantInstanceType": self._catalogue.names,
                    "TransformInstanceType": self._catalogue.names,
                },
                about=self._about,
            ),
            self._autoscaling.service(),
            cloudwatch_service(
                self._metering.stores,
                self._flush,
                alarms=alarm_operations(self._alarms),
                about=alarms_about(self._alarms),
            ),
            logs_service(self._settings.directory / "logs"),
            sts_service(),
            iam_service(),
            self._sns.service(),
        ]

    def _about(self, operation: str, request: Mapping[str, Any], caller: Caller) -> Collection[str]:
        """The endpoints that one of SageMaker's requests is about without naming them."""
        return {
            *self._experiments.about(operation, request, caller),
            *self._monitoring.about(operation, request, caller),
        }

    def _flush(self) -> None:
        self._metering.flush()
        self._asynchronous.flush()

    async def _publish(self, notice: Notice) -> None:
        await self._notifications.publish(notice.endpoint.scope, notice.topic, notice.text, notice.id)

    def _forget(self, endpoint: EndpointId) -> None:
        """An endpoint is gone."""
        self._metering.forget(endpoint)
        self._autoscaling.forget(endpoint)
        self._asynchronous.forget(endpoint)

    def _platform_variables(self, endpoint: EndpointId, fleet: str, variant: Variant) -> Mapping[str, str]:
        """The variables of a variant's instances that the platform sets; the variant's keys hold from now on."""
        variables = self._roles.begin(endpoint, fleet, variant)
        return {**variables, _CPU_FALLBACK: "true"} if self._settings.cpu_fallback else variables

    def _check_update(self, endpoint: EndpointId, instance_types: Mapping[str, str]) -> None:
        self._autoscaling.check_update(endpoint, instance_types)

    def _make_residency(self, endpoint: EndpointId, route: VariantRoute) -> MultiModelResidency:
        meter = self._metering.meter(endpoint, route.spec.name, route.config)
        source = ObservedSource(self._places.of(endpoint.account), self._fetches, endpoint, route.spec.name)
        return MultiModelResidency(route, source, meter, self._settings.residency, self._substrate.files)

    async def start(self) -> int:
        """Go on with what was there before, and listen: the port.

        The port is taken before anything is started, so that a host that cannot have it changes nothing.

        Raises:
            LockError: another host has the directory.
            ListenError: the address cannot be had.
            StoreError: the object store cannot be opened.
            EngineError: the Ray cluster cannot be reached.
            DatabaseError: the state cannot be read.
        """
        async with AsyncExitStack() as parts:
            parts.callback(DirectoryLock(self._settings.directory).release)
            await self._substrate.check()
            port = await self._server.open(
                Endpoint(
                    "SageMaker host",
                    "--port",
                    self._settings.address,
                    self._settings.port,
                    self._connection_factory(),
                    self._connections,
                )
            )
            parts.callback(self._server.stop_accepting)
            directory, caller = self._settings.directory, self._settings.caller
            await asyncio.to_thread(take_over, directory, caller.scope)
            reached_at = self._reached_at(await self._substrate.open())
            parts.push_async_callback(self._stop_substrate)  # if the controller never has it
            await asyncio.to_thread(self._roles.open, reached_at, port)
            await asyncio.to_thread(self._sessions.open, directory)
            parts.callback(self._sessions.end)
            self._url = url_of(reached_at, port)
            await asyncio.to_thread(self._offers.open, self._url)
            await self._store.open()
            parts.push_async_callback(self._store.close)
            parts.callback(self._fetches.close)
            await self._metering.start()
            parts.push_async_callback(self._metering.stop)
            await self._capture.start()
            parts.push_async_callback(self._capture.stop)
            self._container_metrics.start()
            parts.push_async_callback(self._container_metrics.stop)
            await self._alarms.start()
            parts.push_async_callback(self._alarms.stop)
            parts.push_async_callback(self._copies.close)
            parts.push_async_callback(self._stop_controller)
            parts.push_async_callback(self._transforms.stop)
            await self._transforms.open()
            await self._controller.start()
            self._transforms.start()
            parts.push_async_callback(self._autoscaling.stop)
            await self._autoscaling.start()
            parts.push_async_callback(self._experiments.stop)
            await self._experiments.start()
            parts.push_async_callback(self._monitoring.stop)
            await self._monitoring.start()
            parts.push_async_callback(self._notifications.stop)
            await self._notifications.start()
            parts.push_async_callback(self._asynchronous.stop)
            await self._asynchronous.start(self._controller.ids())
            parts.callback(self._invocations.close)
            parts.push_async_callback(self._stop_answering)
            if self._routers is not None:
                await self._routers.start()
            self._parts = parts.pop_all()
        self._is_ready = True
        return port

    def _reached_at(self, node_address: str) -> str:
        """The address at which instances reach this host; `node_address` is this machine's in its cluster."""
        settings = self._settings
        if settings.advertised or not node_address or not is_wildcard(settings.address):
            return settings.advertised or settings.address
        return node_address

    def _connection_factory(self) -> ConnectionLimit:
        """What makes the connections of new clients."""
        if self._routers is not None:
            return self._routers.listen(self._handle, self._connections)
        budget = ReceiveBudget(self._settings.receive_bytes)
        return ConnectionLimit(
            0,
            self._connections,
            lambda: ClientConnection(self._handle, None, self._connections, budget),
            lambda turned_away, error: ClientConnection(
                refuse_all_but_ping(self._handle, error), None, turned_away, budget
            ),
        )

    def _handle(self, request: Request) -> None:
        if self._is_ready:
            self._dispatcher.handle(request)
        else:
            request.respond(503, _STARTING, (("Content-Type", "text/plain"), ("Retry-After", "1")))

    async def _stop_answering(self) -> None:
        self._controller.release()
        self._transforms.release()
        self._server.stop_accepting()
        await self._console.close()
        if self._routers is not None:
            await self._routers.stop(_GRACE_S)
        await self._server.close(_GRACE_S)
        await self._dispatcher.close()
        await self._sns.close()
        if self._routers is not None:
            self._routers.close()
        self._denials.close()

    async def _stop_substrate(self) -> None:
        await self._substrate.stop(leave=self._keep_instances)

    async def _stop_controller(self) -> None:
        await self._controller.stop(leave=self._keep_instances)

    async def stop(self, *, keep_instances: bool = False) -> None:
        """Answer what has been asked, and end; instances too, unless they are to be kept for the next start."""
        self._keep_instances = keep_instances
        await self._parts.aclose()
