"""SageMaker's transform jobs: the operations, and all jobs."""

import asyncio
import secrets
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.control.listing import page_of
from halimede.hosting.control.resources import tags_of
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller, Scope
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.transform.checks import check_job, check_model
from halimede.hosting.transform.defaults import complete_job
from halimede.hosting.transform.dependencies import JobDependencies
from halimede.hosting.transform.job import Job
from halimede.hosting.transform.job_record import JobRecord, Status

_KIND = "transform-job"
_LISTED = "TransformJobSummaries"

Request = Mapping[str, Any]
Answer = dict[str, Any]


class Transforms:
    """All transform jobs (`Guest` of the control plane). Lives on the event loop."""

    def __init__(
        self,
        dependencies: JobDependencies,
        find_model: Callable[[str, Caller], Mapping[str, Any]],
        check_type: Callable[[str], object],
        put_tags: Callable[[str, Mapping[str, str]], Awaitable[None]],
        hold_s: float,
    ) -> None:
        """Nothing is done before `open` and `start`.

        Args:
            dependencies: what jobs are made with.
            find_model: the request that made a model; raises an ApiError if there is none.
            check_type: raises an ApiError for an instance type that there is not.
            put_tags: keeps the tags of an ARN.
            hold_s: how long DescribeTransformJob may hold its answer while the job is under way.
        """
        self._dependencies = dependencies
        self._state = dependencies.state
        self._find_model = find_model
        self._check_type = check_type
        self._put_tags = put_tags
        self._hold_s = hold_s
        self._jobs: dict[tuple[Scope, str], Job] = {}  # those that are not settled, and some that lately were
        self._adopted: dict[str, list[RunningInstance]] = {}

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {
            "CreateTransformJob": self._create,
            "DescribeTransformJob": self._describe,
            "ListTransformJobs": self._list,
            "StopTransformJob": self._stop,
        }

    # coming and going

    async def open(self) -> None:
        """Read what is there.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._state.open()
        await asyncio.to_thread(_remove_others, self._dependencies.directory, set(self.fleets()))

    def start(self) -> None:
        """Go on with what was there, after the control plane has."""
        for key, record in self._state.unsettled.items():
            job = self._jobs[key] = Job(self._dependencies, record, self._adopted.get(record.fleet, ()))
            job.work()
        self._adopted = {}

    def release(self) -> None:
        """Give the answers that are held until a job is settled, and hold none from now on."""
        self._hold_s = 0.0
        for job in self._jobs.values():
            job.release()

    async def stop(self) -> None:
        """Do nothing more. The instances run on until the substrate ends them; the jobs go on at the next start."""
        await asyncio.gather(*(job.forget() for job in self._jobs.values()))
        await self._state.close()

    # what the control plane asks

    def fleets(self) -> Collection[str]:
        """The ids of the fleets of jobs that are not settled."""
        return [record.fleet for record in self._state.unsettled.values()]

    def adopt(self, instances: Mapping[str, RunningInstance]) -> None:
        """Instances that still run, by id."""
        for instance in instances.values():
            self._adopted.setdefault(instance.request.fleet, []).append(instance)

    def ended(self, instance_id: str, reason: str) -> bool:
        """An instance has ended by itself: whether it is a job's."""
        for fleet, adopted in self._adopted.items():  # no job has them yet
            self._adopted[fleet] = [each for each in adopted if each.request.id != instance_id]
        self._forget_settled()
        return any(job.ended(instance_id, reason) for job in self._jobs.values())

    async def has_made(self, arn: str, scope: Scope) -> bool:
        """Whether an ARN is that of a job of an account and region.

        Raises:
            ApiError: the file of the jobs cannot be read.
        """
        name = arn.rpartition("/")[2]
        return arn == scope.arn(_KIND, name) and await self._state.find(scope, name) is not None

    def _forget_settled(self) -> None:
        self._jobs = {key: job for key, job in self._jobs.items() if not job.record.is_settled}

    # operations

    async def _record(self, request: Request, caller: Caller) -> JobRecord:
        name = request["TransformJobName"]
        record = await self._state.find(caller.scope, name)
        if record is None:
            arn = caller.scope.arn(_KIND, name)
            raise ApiError("ResourceNotFound", f'Could not find transform job "{arn}".')
        return record

    async def _create(self, request: Request, caller: Caller) -> Answer:
        name = request["TransformJobName"]
        scope = caller.scope
        arn = scope.arn(_KIND, name)
        check_job(request)
        tags = tags_of(request)
        model = dict(self._find_model(request["ModelName"], caller))
        check_model(request["ModelName"], model)
        self._check_type(request["TransformResources"]["InstanceType"])
        if await self._state.is_taken(scope, name):
            msg = "Job name must be unique within an AWS account and region, and a job with this name already exists"
            raise ApiError("ResourceInUse", f"{msg} ({arn})")
        now = self._dependencies.now()
        document = {key: value for key, value in request.items() if key != "Tags"}
        record = JobRecord(
            name, *scope, arn, Status.IN_PROGRESS, document, model, f"f-{secrets.token_hex(8)}", now, now
        )
        self._state.unsettled[scope, name] = record  # so that nobody else takes the name meanwhile
        try:
            if tags:
                await self._put_tags(arn, tags)
            await self._state.put(record)
        except ApiError:
            del self._state.unsettled[scope, name]
            raise
        self._forget_settled()
        job = self._jobs[scope, name] = Job(self._dependencies, record)
        job.work()
        return {"TransformJobArn": arn}

    async def _describe(self, request: Request, caller: Caller) -> Answer:
        record = await self._record(request, caller)
        job = self._jobs.get((caller.scope, record.name))
        if job is not None and self._hold_s and not record.is_settled:
            await job.settled(self._hold_s)
            record = job.record
        summary = _summary(record)
        del summary["LastModifiedTime"]
        return {**complete_job(record.request), **summary, **_started(record)}

    async def _list(self, request: Request, caller: Caller) -> Answer:
        entries = [_summary(record) for record in await self._state.all(caller.scope)]
        return page_of(entries, request, "TransformJobName", _LISTED, "TransformJobStatus")

    async def _stop(self, request: Request, caller: Caller) -> Answer:
        record = await self._record(request, caller)
        if record.is_settled:
            raise invalid(f"The request was rejected because the transform job is in status {record.status}.")
        job = self._jobs.get((caller.scope, record.name))
        if job is None:
            raise invalid("The request was rejected because the transform job is being created.")
        await job.stop()
        return {}


def _remove_others(directory: Path, fleets: Collection[str]) -> None:
    """Remove what is left of jobs that are no more."""
    if directory.is_dir():
        for entry in directory.iterdir():
            if entry.name not in fleets:
                shutil.rmtree(entry, ignore_errors=True)


def _summary(record: JobRecord) -> Answer:
    """A job in a list."""
    summary: Answer = {
        "TransformJobName": record.name,
        "TransformJobArn": record.arn,
        "CreationTime": _time(record.created),
        "LastModifiedTime": _time(record.modified),
        "TransformJobStatus": str(record.status),
    }
    if record.ended:
        summary["TransformEndTime"] = _time(record.ended)
    if record.reason and record.is_settled:
        summary["FailureReason"] = record.reason
    return summary


def _started(record: JobRecord) -> Answer:
    return {"TransformStartTime": _time(record.started)} if record.started else {}


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
