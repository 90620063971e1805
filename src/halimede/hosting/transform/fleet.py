"""The instances of a transform job: a fleet as an endpoint's variant has, to which no endpoint's requests go."""

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace

from halimede.hosting.control.fleet import VariantFleet
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.identity import TRANSFORM_JOBS, EndpointId
from halimede.hosting.routing.meters import NoMeter
from halimede.hosting.routing.table import RoutingTable
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.transform.job_record import JobRecord
from halimede.hosting.transform.lanes import Lanes
from halimede.hosting.transform.spec import TransformSpec, variant_of


class InstanceFleet:
    """The instances of a job (`JobFleet`). Lives on the event loop."""

    def __init__(
        self,
        dependencies: Dependencies,
        record: JobRecord,
        spec: TransformSpec,
        lanes: Lanes,
        adopted: Sequence[RunningInstance],
    ) -> None:
        """Instances that are not started.

        Args:
            dependencies: what fleets are made with.
            record: what is known of the job.
            spec: what it was asked to do.
            lanes: told which instances take requests.
            adopted: those that run already.
        """
        table = RoutingTable()
        table.watcher = lanes
        self._dependencies = replace(dependencies, table=table, make_meter=lambda *_: NoMeter())
        self._record = record
        self._count = spec.count
        self._adopted = list(adopted)
        self._endpoint = EndpointId(record.account, record.region, TRANSFORM_JOBS)
        self._variant = variant_of(record.request, record.model, spec)
        self._fleet: VariantFleet | None = None

    @property
    def waiting(self) -> str:
        """Why there is no room yet for one of them."""
        return "" if self._fleet is None else self._fleet.waiting

    async def start(self) -> None:
        """Have all of them answer."""
        if self._fleet is None:
            self._fleet = VariantFleet(
                self._dependencies, self._endpoint, self._record.fleet, self._variant, 1.0
            )
        await self._fleet.start(self._count, self._adopted, keep_trying=False)

    def ended(self, instance_id: str, reason: str) -> bool:
        """Whether the instance that has ended is one of these."""
        adopted = [each for each in self._adopted if each.request.id != instance_id]
        is_adopted, self._adopted = len(adopted) < len(self._adopted), adopted
        is_running = self._fleet is not None and self._fleet.ended(instance_id, reason)
        return is_adopted or is_running

    async def retire(self) -> None:
        """End all of them."""
        dependencies = self._dependencies
        grace = dependencies.settings.grace_s
        if self._fleet is not None:
            await self._fleet.retire()
        terminate = dependencies.substrate.terminate
        await asyncio.gather(*(terminate(each.request.id, grace) for each in self._adopted))
        await asyncio.to_thread(
            shutil.rmtree, dependencies.directory / self._record.fleet, ignore_errors=True
        )

    async def forget(self) -> None:
        """Look after none of them any more, and let them run on."""
        if self._fleet is not None:
            await self._fleet.forget()
