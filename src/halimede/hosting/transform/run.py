"""The work of a transform job: objects are listed, instances brought up, and each object is sent through them."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import orjson

from halimede.core import tasks
from halimede.core.backoff import Backoff
from halimede.hosting.errors import ApiError
from halimede.hosting.transform.dependencies import JobDependencies, JobFleet, JobObjects
from halimede.hosting.transform.failures import JobError, TransformError, client_error
from halimede.hosting.transform.inputs import InputObject, inputs_of
from halimede.hosting.transform.job_record import JobRecord
from halimede.hosting.transform.lanes import Lanes
from halimede.hosting.transform.progress import Counts, Progress
from halimede.hosting.transform.sender import Sender
from halimede.hosting.transform.spec import TransformSpec
from halimede.hosting.transform.transformation import Transformation

logger = logging.getLogger("halimede")

_OBJECTS = 16
"""So many objects are open at a time."""

_FAILURES_IN_A_ROW = 10
"""So many objects in a row that cannot be transformed, and the job is given up."""

_WRITES = 4
"""So often an output is written, until its object has failed."""

_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 60.0
_REPORT_S = 2.0
_OUT, _CHECKPOINT = ".out", ".checkpoint"


class Run:
    """The work of a job. Lives on the event loop."""

    def __init__(
        self,
        dependencies: JobDependencies,
        record: JobRecord,
        spec: TransformSpec,
        lanes: Lanes,
        fleet: JobFleet,
        progress: Progress,
    ) -> None:
        """Nothing is done before `transform`.

        Args:
            dependencies: what it needs of the host.
            record: what is known of the job.
            spec: what it was asked to do.
            lanes: where its requests go.
            fleet: its instances.
            progress: how far it is.
        """
        self._dependencies = dependencies
        self._record = record
        self._spec = spec
        self._lanes = lanes
        self._fleet = fleet
        self._progress = progress
        self._objects: JobObjects = dependencies.objects_of(record.account)
        self._directory = dependencies.directory / record.fleet
        self._active: dict[int, Transformation] = {}
        self._failures: dict[int, TransformError] = {}
        self._fails_in_a_row = 0
        self._keeping = asyncio.Lock()
        self._unkept = False
        self._rate = _Rate()
        self._reported: object = None
        self._waited = ""

    def counts(self) -> Counts:
        """What has been done, with what has been done of objects that are not done yet."""
        sums = Counts()
        sums.add(self._progress.counts)
        for each in self._active.values():
            sums.records += each.counts.records
            sums.bytes_in += each.counts.bytes_in
        return sums

    async def transform(self) -> None:
        """Transform all objects that are not done. It may be cancelled, and goes on then when called by another run.

        Raises:
            TransformError: not all of them could be.
            ApiError: the instances do not come up, or what there is to do cannot be kept.
        """
        reporting = tasks.forever("reporting a transform job", self._report_always)
        try:
            await self._transform()
        finally:
            await tasks.cancel(reporting)

    async def _transform(self) -> None:
        spec = self._spec
        self._tell(
            f"{spec.source} to {spec.destination}, model {self._record.request['ModelName']}, "
            f"{spec.count} x {spec.instance_type}"
        )
        inputs = await self._inputs()
        await asyncio.to_thread(_prepare, self._directory)
        await self._fleet.start()
        if not self._record.started:
            self._record.started = self._dependencies.now()
            await self._dependencies.state.put(self._record)
        if self._spec.unset:
            self._spec = self._spec.completed(await self._dependencies.parameters(self._lanes))
            self._lanes.each = self._spec.concurrent
        split = self._spec.split
        self._tell(
            f"MaxConcurrentTransforms={self._spec.concurrent}, MaxPayloadInMB={split.payload_bytes >> 20}, "
            f"BatchStrategy={'SingleRecord' if split.single else 'MultiRecord'}: {len(inputs)} objects"
        )
        await self._all(inputs)
        if self._failures:
            first = self._failures[min(self._failures)]
            more = len(self._failures) - 1
            raise TransformError(
                first.kind, first.message + (f" ({more} more objects failed)" if more else "")
            )

    async def _inputs(self) -> Sequence[InputObject]:
        """The objects, which stay those that they were when the job began."""
        state = self._dependencies.state
        inputs = state.inputs(self._record)
        if inputs is None:
            inputs = await inputs_of(self._spec, self._objects)
            await state.put_inputs(self._record, inputs)
        progress = self._progress
        progress.total, progress.failed = len(inputs), 0
        progress.total_bytes = sum(each.size for each in inputs)
        await state.put_progress(self._record, progress)
        return inputs

    async def _all(self, inputs: Sequence[InputObject]) -> None:
        """Transform objects, several at a time.

        Raises:
            JobError: the others need not be tried.
        """
        places = self._spec.count * self._spec.concurrent
        sender = Sender(
            self._lanes,
            self._dependencies.make_exchanges(self._spec),
            self._spec.retries,
            self._spec.timeout_s,
        )
        permits = asyncio.Semaphore(2 * places)
        todo = deque(index for index in range(len(inputs)) if not self._progress.is_done(index))

        async def work() -> None:
            while todo:
                index = todo.popleft()
                await self._try(index, inputs[index], Transformation(self._spec, sender, permits))

        await tasks.all_of(work() for _ in range(min(places, _OBJECTS, len(todo))))

    async def _try(self, index: int, given: InputObject, transformation: Transformation) -> None:
        """Transform one object, or note why it cannot be.

        Raises:
            JobError: the others need not be tried.
        """
        self._active[index] = transformation
        try:
            await self._one(index, given, transformation)
        except JobError:
            raise
        except (TransformError, ApiError, OSError) as error:
            failure = _failure(given, error)
            self._failures[index] = failure
            self._progress.failed = len(self._failures)
            self._tell(failure.reason)
            self._fails_in_a_row += 1
            if self._fails_in_a_row >= _FAILURES_IN_A_ROW:
                raise JobError(
                    failure.kind, f"{failure.message} ({self._fails_in_a_row} objects in a row failed)"
                ) from None
        else:
            self._fails_in_a_row = 0
            self._progress.finish(index, transformation.counts)
            del self._active[index]
            await self._keep_progress()
        finally:
            self._active.pop(index, None)

    async def _one(self, index: int, given: InputObject, transformation: Transformation) -> None:
        output = self._directory / f"{index}{_OUT}"
        etag = (await self._objects.describe(given.url)).etag
        try:
            async with self._objects.file(given.url, self._directory) as path:
                await transformation.run(path, output, etag)
            transformation.counts.objects = 1
            await self._write(given.output, output)
        except asyncio.CancelledError:
            raise  # it may be gone on with
        except Exception:
            await asyncio.to_thread(_remove, output)
            raise
        await asyncio.to_thread(_remove, output)

    async def _write(self, url: str, output: Path) -> None:
        """Put an output where it belongs, whole."""
        backoff = Backoff(_BACKOFF_S, _LONGEST_BACKOFF_S)
        for left in range(_WRITES - 1, -1, -1):
            try:
                await self._objects.write(url, output)
                return
            except ApiError as error:
                if not left:
                    raise
                self._tell(error.message)
            await backoff.pause()

    async def _keep_progress(self) -> None:
        """Write down which objects are done; several that are done at the same time with one write."""
        self._unkept = True
        async with self._keeping:
            if not self._unkept:
                return
            self._unkept = False
            try:
                await self._dependencies.state.put_progress(self._record, self._progress)
            except ApiError as error:  # they would only be done again
                self._unkept = True
                logger.error("transform job '%s': %s", self._record.name, error.message)

    # what users see

    def _tell(self, line: str) -> None:
        self._dependencies.tell(self._record, line)

    async def _report_always(self) -> None:
        while True:
            self.report()
            await asyncio.sleep(_REPORT_S)

    def report(self) -> None:
        """Tell what it waits for, and how far the job is, if that is new: a line of JSON."""
        waiting = self._fleet.waiting
        if waiting not in ("", self._waited):
            self._tell(f"waits: {waiting}")
        self._waited = waiting
        counts, progress = self.counts(), self._progress
        now = (counts, progress.failed, progress.total)
        if now == self._reported or not progress.total:
            return
        self._reported = now
        rate = self._rate.at(asyncio.get_running_loop().time(), counts.bytes_in)
        left = progress.total_bytes - counts.bytes_in
        document = {
            "objects": counts.objects,
            "of": progress.total,
            "failed": progress.failed,
            "records": counts.records,
            "bytes_in": counts.bytes_in,
            "of_bytes": progress.total_bytes,
            "bytes_per_s": round(rate),
            "seconds_left": round(left / rate) if rate and progress.total_bytes and left >= 0 else None,
        }
        self._tell(orjson.dumps(document).decode())


class _Rate:
    """How fast a number has grown lately."""

    _WINDOW = 15

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=self._WINDOW)

    def at(self, time: float, value: int) -> float:
        """The growth per second, of the last values that were given."""
        self._seen.append((time, value))
        (before, low), (now, high) = self._seen[0], self._seen[-1]
        return max(0.0, (high - low) / (now - before)) if now > before else 0.0


def _failure(given: InputObject, error: Exception) -> TransformError:
    """Why an object cannot be transformed, with its name."""
    if isinstance(error, TransformError):
        return TransformError(error.kind, f"{given.url}: {error.message}")
    if isinstance(error, ApiError):
        return client_error(f"{given.url}: {error.message}")
    return TransformError("InternalServerError", f"{given.url}: {error}")


def _prepare(directory: Path) -> None:
    """Make a directory; of what an earlier process left there only outputs and their checkpoints stay."""
    directory.mkdir(parents=True, exist_ok=True)
    for entry in directory.iterdir():
        if entry.suffix not in (_OUT, _CHECKPOINT):
            entry.unlink()


def _remove(output: Path) -> None:
    """Remove an output and its checkpoint."""
    output.unlink(missing_ok=True)
    output.with_suffix(_CHECKPOINT).unlink(missing_ok=True)
