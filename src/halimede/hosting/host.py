"""The host: all its parts, started and stopped together. Lives on the event loop."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from halimede.core.origins import OriginPolicy, is_local
from halimede.frontends.receiving import ReceiveBudget
from halimede.frontends.server import Connections, Endpoint, Server
from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.program_images import ProgramImageGate, ProgramImages
from halimede.hosting.access.roles import InstanceRoles
from halimede.hosting.access.web_pages import WebPageGuard
from halimede.hosting.addresses import is_wildcard, url_of
from halimede.hosting.api.dispatcher import Dispatcher
from halimede.hosting.api.services import Service
from halimede.hosting.api.sts import sts_service
from halimede.hosting.control.controller import Controller
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.fetches import Fetches, ObservedSource
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.http.request import Request
from halimede.hosting.identity import EndpointId
from halimede.hosting.lock import DirectoryLock
from halimede.hosting.metering.alarms.alarms import Alarms
from halimede.hosting.metering.alarms.operations import alarm_operations
from halimede.hosting.metering.cloudwatch import cloudwatch_service
from halimede.hosting.metering.container_metrics import ContainerMetrics
from halimede.hosting.metering.logs import logs_service
from halimede.hosting.metering.metering import Metering
from halimede.hosting.migration import take_over
from halimede.hosting.pages import pages
from halimede.hosting.routers.routers import Routers
from halimede.hosting.routing.invocations import Invocations
from halimede.hosting.routing.residency.residency import MultiModelResidency
from halimede.hosting.routing.sessions import Sessions
from halimede.hosting.routing.table import RoutingTable, VariantRoute
from halimede.hosting.scaling.autoscaling import Autoscaling
from halimede.hosting.settings import HostSettings
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.offers import OfferService, OfferTokens
from halimede.hosting.store.s3_service import S3Service
from halimede.hosting.store.sources import model_source
from halimede.hosting.substrates.catalogue import Catalogue
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.local import LocalSubstrate
from halimede.hosting.substrates.ray.substrate import RaySubstrate

_GRACE_S = 5.0
"""What has been asked may take so long to be answered when the host stops."""

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
            self._roles.begin,
            self._roles.end,
            self._check_update,
        )
        self._controller = Controller(dependencies, directory / "state.db")
        self._autoscaling = Autoscaling(
            directory / "scaling.db", self._controller, self._alarms, settings.pace.seconds
        )
        self._sessions = Sessions()
        self._invocations = Invocations(self._table, settings.invocation, self._sessions)
        self._denials = Denials()
        self._dispatcher = Dispatcher(
            Gate(settings.keys, settings.caller, issued=self._roles.find),
            self._services(),
            self._invocations,
            S3Service(self._store, denied=self._denials.note),
            pages(self._table, self._metering),
            # clients, instances among them, reach the host by the name that it listens at
            WebPageGuard(OriginPolicy((settings.address, *settings.allowed_hosts), settings.allowed_origins)),
            ProgramImageGate(settings.program_images, images.is_program),
            self._denials,
            OfferService(self._offers, self._places, self._store, self._denials.note).handle,
        )
        self._routers: Routers | None = None
        if settings.router_processes > 1:
            self._routers = Routers(settings, self._table, self._roles, self._metering.absorb, self._sessions)
        self._server = Server()
        self._connections: Connections[ClientConnection] = Connections()
        self._parts = AsyncExitStack()  # what has been started
        self._is_ready = False
        self._keep_instances = False

    def _services(self) -> list[Service]:
        return [
            Service(
                "sagemaker",
                self._controller.operations(),
                further={"ProductionVariantInstanceType": self._catalogue.names},
            ),
            self._autoscaling.service(),
            cloudwatch_service(
                self._metering.stores, self._metering.flush, alarms=alarm_operations(self._alarms)
            ),
            logs_service(self._settings.directory / "logs"),
            sts_service(),
        ]

    def _forget(self, endpoint: EndpointId) -> None:
        """An endpoint is gone."""
        self._metering.forget(endpoint)
        self._autoscaling.forget(endpoint)

    def _check_update(self, endpoint: EndpointId, instance_types: Mapping[str, str]) -> None:
        self._autoscaling.check_update(endpoint, instance_types)

    def _make_residency(self, endpoint: EndpointId, route: VariantRoute) -> MultiModelResidency:
        meter = self._metering.meter(endpoint, route.spec.name)
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
            await asyncio.to_thread(self._roles.open, reached_at, port)
            await asyncio.to_thread(self._sessions.open, directory / "sessions.key")
            await asyncio.to_thread(self._offers.open, url_of(reached_at, port))
            await self._store.open()
            parts.push_async_callback(self._store.close)
            parts.callback(self._fetches.close)
            await self._metering.start()
            parts.push_async_callback(self._metering.stop)
            self._container_metrics.start()
            parts.push_async_callback(self._container_metrics.stop)
            await self._alarms.start()
            parts.push_async_callback(self._alarms.stop)
            parts.push_async_callback(self._stop_controller)
            await self._controller.start()
            parts.push_async_callback(self._autoscaling.stop)
            await self._autoscaling.start()
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

    def _connection_factory(self) -> Callable[[], ClientConnection]:
        """What makes the connections of new clients."""
        if self._routers is not None:
            return self._routers.listen(self._handle, self._connections)
        budget = ReceiveBudget(self._settings.receive_bytes)
        return lambda: ClientConnection(self._handle, None, self._connections, budget)

    def _handle(self, request: Request) -> None:
        if self._is_ready:
            self._dispatcher.handle(request)
        else:
            request.respond(503, _STARTING, (("Content-Type", "text/plain"), ("Retry-After", "1")))

    async def _stop_answering(self) -> None:
        self._controller.release()
        self._server.stop_accepting()
        if self._routers is not None:
            await self._routers.stop(_GRACE_S)
        await self._server.close(_GRACE_S)
        await self._dispatcher.close()
        if self._routers is not None:
            self._routers.close()
        self._denials.close()

    async def _stop_controller(self) -> None:
        await self._controller.stop(leave=self._keep_instances)

    async def stop(self, *, keep_instances: bool = False) -> None:
        """Answer what has been asked, and end; instances too, unless they are to be kept for the next start."""
        self._keep_instances = keep_instances
        await self._parts.aclose()
