"""What is done about an experiment in each of its states; each step is kept before the next one is taken.

Creating ──► Created ──► Starting ──► Running ──► Stopping ──► Completed | Cancelled
                                      ▲     │
                                      └ Updating

A change of the endpoint is asked for once it is in service, and has come about when it is in service with the
configuration that it was to get. If it is in service with another one after it was asked, the change has failed.
"""

import logging
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from halimede.hosting.deployed import Deployed, Endpoints
from halimede.hosting.errors import ApiError
from halimede.hosting.experiments.configs import later_config
from halimede.hosting.experiments.records import OVER, Deployment, ExperimentRecord, Status
from halimede.hosting.experiments.state import ExperimentState
from halimede.hosting.identity import Caller

logger = logging.getLogger("halimede")

_DEPLOYING = (Status.STARTING, Status.UPDATING, Status.STOPPING)


class Steps:
    """Brings experiments from state to state. Whoever calls it holds the state's lock."""

    def __init__(self, state: ExperimentState, endpoints: Endpoints, now: Callable[[], float]) -> None:
        """Works on the experiments of `state`, by the clock `now`, in seconds since 1970."""
        self._state = state
        self._endpoints = endpoints
        self._now = now

    async def tick(self) -> None:
        """Do what is due."""
        for record in self._state.all():
            if record.status not in OVER:
                try:
                    await self._step(record)
                except ApiError as error:
                    logger.error("inference experiment '%s': %s", record.name, error.message)

    async def change(self, record: ExperimentRecord, **members: Any) -> ExperimentRecord:
        """Keep a changed record: the new one.

        Raises:
            ApiError: it cannot be kept; then nothing has changed.
        """
        changed = deepcopy(record)
        for name, value in {"modified": self._now(), **members}.items():
            setattr(changed, name, value)
        await self._state.put(changed)
        if changed.status is not record.status:
            logger.info("inference experiment '%s' is %s", record.name, changed.status)
        return changed

    async def _step(self, record: ExperimentRecord) -> None:
        deployed = self._endpoints.deployed(record.endpoint)
        if deployed is None or deployed.status in ("Deleting", "Failed"):
            state = "gone" if deployed is None or deployed.status == "Deleting" else "failed"
            await self._cancel(record, f"the endpoint is {state}")
        elif record.status is Status.CREATING:
            await self.change(record, status=Status.CREATED)
        elif record.status is Status.CREATED:
            if self._now() >= record.end:
                await self._cancel(record, "its schedule was over before it could start")
            elif self._now() >= record.start:
                await self.start(record)
        elif record.status in _DEPLOYING:
            await self._deploy(record, deployed)
        elif deployed.is_in_service and deployed.config_name != record.config_name:
            await self._cancel(record, f"the endpoint was given the configuration {deployed.config_name}")
        elif self._now() >= record.end and deployed.is_in_service:
            try:
                await self.stop(record, deployed, Status.COMPLETED)
            except ApiError as error:
                await self._cancel(record, f"its shadow variant cannot be removed: {error.message}")

    async def _cancel(self, record: ExperimentRecord, reason: str) -> None:
        await self.change(
            record,
            status=Status.CANCELLED,
            reason=reason,
            completed=self._now(),
            deployment=None,
            before=None,
        )

    async def start(self, record: ExperimentRecord) -> ExperimentRecord:
        """Have the endpoint become what the experiment needs."""
        return await self.change(
            record,
            status=Status.STARTING,
            start=self._now(),
            deployment=Deployment(record.config_name, Status.RUNNING),
        )

    async def stop(
        self,
        record: ExperimentRecord,
        deployed: Deployed,
        then: Status,
        stays: dict[str, Any] | None = None,
        removed: str = "",
        reason: str = "",
    ) -> ExperimentRecord:
        """Have the endpoint become what it is to be afterwards.

        Args:
            record: the experiment, which runs.
            deployed: its endpoint.
            then: its state afterwards.
            stays: the `ModelVariantConfig` of the variant that stays; the production variant's if it is left out.
            removed: the variant that goes; the shadow if it is left out.
            reason: why.

        Raises:
            ApiError: there can be no such configuration.
        """
        variants = {each["VariantName"]: each for each in record.request["ModelVariants"]}
        config = later_config(
            record.request, deployed.config, stays or variants[record.production], record.capture
        )
        await self._endpoints.make_config(config, Caller(account=record.account, region=record.region))
        return await self.change(
            record,
            status=Status.STOPPING,
            reason=reason,
            removed=[removed or record.shadow],
            deployment=Deployment(config["EndpointConfigName"], then),
        )

    async def _deploy(self, record: ExperimentRecord, deployed: Deployed) -> None:
        deployment = record.deployment
        assert deployment is not None
        if not deployed.is_in_service:
            return
        if deployed.config_name == deployment.config_name:
            await self._deployed(record, deployment)
        elif deployment.asked:
            await self._failed(
                record, deployment, deployed.reason or "the endpoint was given another configuration"
            )
        else:
            try:
                await self._endpoints.deploy(record.endpoint, deployment.config_name)
            except ApiError as error:
                if self._in_service(record):  # otherwise another change came first, and this one waits for it
                    await self._failed(record, deployment, error.message)
                return
            # if the host ends before this is kept, the endpoint is asked once more
            await self.change(
                record, deployment=Deployment(deployment.config_name, deployment.then, asked=True)
            )

    def _in_service(self, record: ExperimentRecord) -> bool:
        deployed = self._endpoints.deployed(record.endpoint)
        return deployed is not None and deployed.is_in_service

    async def _deployed(self, record: ExperimentRecord, deployment: Deployment) -> None:
        """The endpoint is what it was to become."""
        completed = self._now() if deployment.then in OVER else 0.0
        await self.change(
            record,
            status=deployment.then,
            config_name=deployment.config_name,
            completed=completed,
            deployment=None,
            before=None,
        )

    async def _failed(self, record: ExperimentRecord, deployment: Deployment, reason: str) -> None:
        """The endpoint has not become what it was to become."""
        if record.status is Status.UPDATING and record.before is not None:
            text = f"the update did not come about: {reason}"
            await self.change(
                record, status=Status.RUNNING, reason=text, deployment=None, before=None, **record.before
            )
            return
        what = "does not become" if record.status is Status.STARTING else "stays as it is; it does not become"
        text = f"the endpoint {what} what {deployment.config_name} says: {reason}"
        await self.change(
            record,
            status=Status.CANCELLED,
            reason=text,
            completed=self._now(),
            deployment=None,
            removed=[],
        )
