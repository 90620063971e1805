"""The operations on inference experiments, and the clock that moves them."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.control.listing import page_of
from halimede.hosting.control.resources import is_taken, tags_of
from halimede.hosting.deployed import Deployed, Endpoints
from halimede.hosting.each_second import EachSecond
from halimede.hosting.errors import ApiError
from halimede.hosting.experiments.checks import actions_of, check_experiment, check_update, schedule_of
from halimede.hosting.experiments.configs import running_config
from halimede.hosting.experiments.descriptions import describe_experiment, experiment_summary
from halimede.hosting.experiments.records import OVER, Deployment, ExperimentRecord, Status
from halimede.hosting.experiments.state import ExperimentState
from halimede.hosting.experiments.steps import Steps
from halimede.hosting.identity import Caller

logger = logging.getLogger("halimede")

_REDEPLOYED = ("ModelVariants", "DataStorageConfig", "ShadowModeConfig")
"""What an update changes the endpoint for."""

Request = Mapping[str, Any]
Answer = dict[str, Any]


class Experiments:
    """Inference experiments. Lives on the event loop."""

    def __init__(self, path: Path, endpoints: Endpoints, now: Callable[[], float] = time.time) -> None:
        """Nothing is done before `start`.

        Args:
            path: the file that keeps them.
            endpoints: where they run.
            now: the time, in seconds since 1970.
        """
        self._state = ExperimentState(path)
        self._endpoints = endpoints
        self._now = now
        self._steps = Steps(self._state, endpoints, now)
        self._ticking = EachSecond("inference experiments", self.tick)
        self._names = frozenset(self.operations())

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {
            "CreateInferenceExperiment": self._locked(self._create),
            "StartInferenceExperiment": self._locked(self._start_now),
            "StopInferenceExperiment": self._locked(self._stop_now),
            "UpdateInferenceExperiment": self._locked(self._update),
            "DeleteInferenceExperiment": self._locked(self._delete),
            "DescribeInferenceExperiment": self._describe,
            "ListInferenceExperiments": self._list,
        }

    def _locked(self, operation: Operation) -> Operation:
        async def run(request: Request, caller: Caller) -> Mapping[str, Any]:
            async with self._state.changing:
                return await operation(request, caller)

        return run

    # coming and going

    async def open(self) -> None:
        """Read what was there before.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._state.open()

    async def start(self) -> None:
        """Read what was there before, and go on with it.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self.open()
        self._ticking.start()

    async def stop(self) -> None:
        """Do nothing more. What is being done goes on when the host is started again."""
        await self._ticking.stop()
        async with self._state.changing:
            await self._state.close()

    async def tick(self) -> None:
        """What is done each second."""
        async with self._state.changing:
            await self._steps.tick()

    def about(self, operation: str, request: Request, caller: Caller) -> Collection[str]:
        """The endpoint of the experiment that a request names, by name or ARN."""
        name = request.get("Name") if operation in self._names else None
        arn = request.get("ResourceArn")
        return {
            record.endpoint.name
            for record in self._state.of(caller.scope)
            if record.name == name or caller.scope.arn("inference-experiment", record.name) == arn
        }

    # operations

    def _find(self, request: Request, caller: Caller) -> ExperimentRecord:
        record = self._state.find(caller.scope, request["Name"])
        if record is None:
            arn = caller.scope.arn("inference-experiment", request["Name"])
            raise ApiError("ResourceNotFound", f'Could not find inference experiment "{arn}".')
        return record

    def _deployed(self, record: ExperimentRecord) -> Deployed:
        deployed = self._endpoints.deployed(record.endpoint)
        if deployed is None:
            raise _conflict(f'Endpoint "{record.endpoint.name}" is gone.')
        return deployed

    async def _create(self, request: Request, caller: Caller) -> Answer:
        name, scope, now = request["Name"], caller.scope, self._now()
        arn = scope.arn("inference-experiment", name)
        if is_taken(name, (record.name for record in self._state.of(scope))):
            raise ApiError("ResourceInUse", f'Cannot create already existing inference experiment "{arn}".')
        tags = tags_of(request)
        begin, end = schedule_of(request.get("Schedule", {}), now)
        kept = {key: value for key, value in request.items() if key not in ("Schedule", "Tags")}
        record = ExperimentRecord(name, *scope, kept, begin, end, now, now)
        deployed = self._endpoints.deployed(record.endpoint)
        check_experiment(kept, deployed)
        for other in self._state.of(scope):
            if other.endpoint == record.endpoint and other.status not in OVER:
                msg = (
                    f'Endpoint "{record.endpoint.name}" has the inference experiment "{other.name}" already.'
                )
                raise ApiError("ResourceInUse", msg)
        assert deployed is not None
        config = running_config(kept, deployed.config)
        await self._endpoints.make_config(config, caller)
        record.config_name = config["EndpointConfigName"]
        record.capture = deployed.config.get("DataCaptureConfig")
        await self._state.add(record, tags)
        return {"InferenceExperimentArn": arn}

    async def _start_now(self, request: Request, caller: Caller) -> Answer:
        record = self._find(request, caller)
        if record.status not in (Status.CREATING, Status.CREATED):
            raise _conflict(f'Cannot start inference experiment "{record.name}": it is {record.status}.')
        await self._steps.start(record)
        return {"InferenceExperimentArn": record.arn}

    async def _stop_now(self, request: Request, caller: Caller) -> Answer:
        record = self._find(request, caller)
        first, second = actions_of(record, request)
        reason = request.get("Reason", "")
        if record.status in (Status.CREATING, Status.CREATED):
            then = Status(request.get("DesiredState", Status.CANCELLED))
            await self._steps.change(record, status=then, reason=reason, completed=self._now())
        elif record.status is not Status.RUNNING:
            raise _conflict(f'Cannot stop inference experiment "{record.name}": it is {record.status}.')
        else:
            then = Status(request.get("DesiredState", Status.COMPLETED))
            await self._stop_running(record, request, (first, second), then, reason)
        return {"InferenceExperimentArn": record.arn}

    async def _stop_running(
        self, record: ExperimentRecord, request: Request, actions: tuple[str, str], then: Status, reason: str
    ) -> None:
        if actions == ("Retain", "Retain"):
            await self._steps.change(record, status=then, reason=reason, completed=self._now())
            return
        stays, goes = record.production, record.shadow
        if actions[0] == "Remove":
            stays, goes = goes, stays
        variants = {each["VariantName"]: each for each in record.request["ModelVariants"]}
        desired = {each["VariantName"]: each for each in request.get("DesiredModelVariants", ())}
        others = sorted(set(desired) - {stays, goes})
        if others:
            raise ApiError("ValidationException", f"DesiredModelVariants: there is no variant '{others[0]}'")
        await self._steps.stop(
            record, self._deployed(record), then, {**variants[stays], **desired.get(stays, {})}, goes, reason
        )

    async def _update(self, request: Request, caller: Caller) -> Answer:
        record = self._find(request, caller)
        if record.status not in (Status.CREATED, Status.RUNNING):
            raise _conflict(f'Cannot update inference experiment "{record.name}": it is {record.status}.')
        check_update(record, request)
        begin, end = record.start, record.end
        if "Schedule" in request:
            begin, end = self._new_schedule(record, request["Schedule"])
        changed = deepcopy(record.request)
        for member in ("Description", "DataStorageConfig", "ShadowModeConfig"):
            if member in request:
                changed[member] = request[member]
        for variant in request.get("ModelVariants", ()):
            names = [each["VariantName"] for each in changed["ModelVariants"]]
            at = names.index(variant["VariantName"]) if variant["VariantName"] in names else len(names)
            changed["ModelVariants"][at : at + 1] = [variant]
        members: dict[str, Any] = {"request": changed, "start": begin, "end": end}
        if any(member in request for member in _REDEPLOYED):
            members |= await self._redeploy(record, changed, caller)
        await self._steps.change(record, **members)
        return {"InferenceExperimentArn": record.arn}

    def _new_schedule(self, record: ExperimentRecord, schedule: Request) -> tuple[float, float]:
        """The schedule that a request changes; what it does not say stays, as far as it can."""
        begin, end = schedule_of(schedule, self._now(), record.start)
        if "EndTime" not in schedule and record.end > begin:
            end = record.end
        return begin, end

    async def _redeploy(self, record: ExperimentRecord, changed: Answer, caller: Caller) -> Answer:
        """Make the configuration of an updated experiment; the endpoint gets it, if the experiment runs."""
        deployed = self._deployed(record)
        check_experiment(changed, deployed)
        config = running_config(changed, deployed.config)
        await self._endpoints.make_config(config, caller)
        name = config["EndpointConfigName"]
        if record.status is Status.CREATED:
            return {"config_name": name}
        return {
            "status": Status.UPDATING,
            "reason": "",
            "before": {"request": record.request, "config_name": record.config_name},
            "deployment": Deployment(name, Status.RUNNING),
        }

    async def _delete(self, request: Request, caller: Caller) -> Answer:
        record = self._find(request, caller)
        if record.status not in (*OVER, Status.CREATED):
            msg = f'Cannot delete inference experiment "{record.name}": it is {record.status}; stop it first.'
            raise _conflict(msg)
        await self._state.remove(record)
        return {"InferenceExperimentArn": record.arn}

    async def _describe(self, request: Request, caller: Caller) -> Answer:
        record = self._find(request, caller)
        return describe_experiment(record, self._endpoints.deployed(record.endpoint))

    async def _list(self, request: Request, caller: Caller) -> Answer:
        entries = [experiment_summary(record) for record in self._state.of(caller.scope)]
        return page_of(entries, request, "Name", "InferenceExperiments", "Status")


def _conflict(message: str) -> ApiError:
    return ApiError("ConflictException", message)
