"""Complete spool files on their way to their bucket: made into records, uploaded, and then removed."""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from halimede.core import tasks
from halimede.core.clock import WALL_CLOCK
from halimede.core.cpus import cpu_budget
from halimede.hosting.capture.conversion import ConversionError, Converted, convert_apart
from halimede.hosting.capture.settings import CaptureSettings
from halimede.hosting.capture.spool import (
    OPEN,
    RAW,
    RECORDS,
    CapturePlace,
    SpoolError,
    complete_abandoned,
    read_place,
)
from halimede.hosting.capture.writer import SpoolRoom
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.counts import InvocationCounts

logger = logging.getLogger("halimede")

_AT_A_TIME = 16
_BYTES_AT_A_TIME = 32 << 20
"""So many files, and not many more bytes, are made into records by one process."""

_REST = 3.0
"""On a machine of few processors uploading rests so many times as long as it has worked: instances need them too."""

_LONGEST_REST_S = 5.0
_FEW_CPUS = 4

_MIB = 1 << 20

Write = Callable[[str, str, Path], Awaitable[None]]
"""Writes an object: for an account, to a URL, the bytes of a file. Raises an ApiError if that cannot be."""

Absorb = Callable[[EndpointId, str, InvocationCounts], None]
"""Counts what has become of the records of a variant."""


@dataclass(frozen=True, slots=True)
class _Complete:
    """A complete file, and its bytes."""

    path: Path
    place: CapturePlace
    size: int


@dataclass(slots=True)
class _Bucket:
    """A bucket of an account to which files go.

    Attributes:
        task: uploads them; None while nothing is done.
        retry_at: not before, in seconds since 1970.
        retry_s: how long the last wait was, 0 if the last upload did not fail.
    """

    task: asyncio.Task[None] | None = None
    retry_at: float = 0.0
    retry_s: float = 0.0


@dataclass(slots=True)
class _Swept:
    """What was found in the directory.

    Attributes:
        files: complete ones, the oldest first.
        cut: how many records were cut off, by where they were to go.
    """

    files: list[_Complete] = field(default_factory=list)
    cut: Counter[CapturePlace] = field(default_factory=Counter)


class Uploader:
    """Uploads the spool files of all processes of the host. Lives on the event loop.

    Attributes:
        room: whether there is room on the disk.
    """

    def __init__(
        self,
        directory: Path,
        settings: CaptureSettings,
        write: Write,
        absorb: Absorb,
        now: Callable[[], float] = WALL_CLOCK.now,
        convert: Callable[[Sequence[Path]], list[Converted]] = convert_apart,
        cpus: int | None = None,
    ) -> None:
        """Nothing is done before `start`, or `sweep`.

        Args:
            directory: where the files are.
            settings: limits.
            write: writes objects.
            absorb: counts what has become of records.
            now: the time, in seconds since 1970.
            convert: makes files into records; blocks.
            cpus: how many processors there are; None to find out.
        """
        self.room = SpoolRoom(directory, settings, now)
        self._directory = directory
        self._settings = settings
        self._write = write
        self._absorb = absorb
        self._now = now
        self._convert = convert
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._converted: dict[Path, Converted] = {}  # and not uploaded yet
        self._places: dict[Path, CapturePlace] = {}
        self._stopping = asyncio.Event()
        self._rest_factor = _REST if (cpus or cpu_budget()) < _FEW_CPUS else 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Go on where the last process of the host stopped, and look from time to time whether there is more."""
        await asyncio.to_thread(self._remove_unfinished)
        self._task = tasks.forever("data capture: looking for complete files", self._run)

    def _remove_unfinished(self) -> None:
        if self._directory.is_dir():
            for path in self._directory.iterdir():
                if path.suffix == RECORDS or path.name.startswith("."):
                    path.unlink(missing_ok=True)

    async def stop(self, timeout_s: float) -> None:
        """Upload what can be in so many seconds; the rest stays for the next process of the host."""
        self._stopping.set()
        await tasks.cancel(self._task)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.idle()
                await self.sweep()
                await self.idle()
        for bucket in self._buckets.values():
            if bucket.task is not None:
                bucket.task.cancel()
        await self.idle()

    async def _run(self) -> None:
        while True:
            await self.sweep()
            await asyncio.sleep(self._settings.sweep_s)

    async def sweep(self) -> None:
        """Look at the directory, and begin to upload what is complete and may be tried."""
        swept = await asyncio.to_thread(self._sweep)
        for place, count in swept.cut.items():
            self._count(place, InvocationCounts(capture_dropped=count))
        by_bucket: dict[tuple[str, str], list[_Complete]] = {}
        for file in swept.files:
            by_bucket.setdefault((file.place.account, file.place.bucket), []).append(file)
        now = self._now()
        for key, files in by_bucket.items():
            bucket = self._buckets.setdefault(key, _Bucket())
            if bucket.task is None and now >= bucket.retry_at:
                bucket.task = tasks.start("data capture: uploading", self._upload_all(bucket, files))
        for key in [key for key, each in self._buckets.items() if each.task is None and key not in by_bucket]:
            del self._buckets[key]

    async def idle(self) -> None:
        """Return when nothing is being uploaded."""
        while uploads := [each.task for each in self._buckets.values() if each.task is not None]:
            await asyncio.wait(uploads)

    # the directory, on another thread

    def _sweep(self) -> _Swept:
        swept = _Swept()
        if not self._directory.is_dir():
            return swept
        with suppress(OSError):
            self.room.check(self._settings.flush_bytes)
        with os.scandir(self._directory) as entries:
            paths = sorted(self._directory / entry.name for entry in entries)
        for path in paths:
            complete = path.with_suffix(RAW)
            if path.suffix == OPEN:
                with suppress(OSError):
                    if complete_abandoned(path) and (place := self._place(complete)) is not None:
                        swept.cut[place] += 1
            elif path.suffix != RAW:
                continue
            with suppress(FileNotFoundError):  # still being written, or uploaded meanwhile
                size, place = complete.stat().st_size, self._place(complete)
                if place is not None:
                    swept.files.append(_Complete(complete, place, size))
        known = {file.path for file in swept.files}
        self._places = {path: place for path, place in self._places.items() if path in known}
        return swept

    def _place(self, path: Path) -> CapturePlace | None:
        """Where the records of a complete file go; one that does not say is removed."""
        place = self._places.get(path)
        if place is None:
            try:
                place = self._places[path] = read_place(path)
            except OSError:
                return None
            except SpoolError as error:
                logger.error("data capture: %s is removed: %s", path, error)
                path.unlink(missing_ok=True)
        return place

    def _remove(self, path: Path) -> None:
        """Remove a complete file, and what was made of it."""
        path.unlink(missing_ok=True)
        path.with_suffix(RECORDS).unlink(missing_ok=True)

    # uploading

    async def _upload_all(self, bucket: _Bucket, files: Sequence[_Complete]) -> None:
        try:
            await self._upload(bucket, files)
        except Exception:  # of one bucket, and the log has what nobody foresaw
            logger.exception("data capture: uploading failed")
            self._put_off(bucket)
        finally:
            bucket.task = None

    async def _upload(self, bucket: _Bucket, files: Sequence[_Complete]) -> None:
        """Upload files until one cannot be."""
        # some were uploaded after they were found
        waiting = await asyncio.to_thread(lambda: [file for file in files if file.path.exists()])
        while waiting:
            count = 1 if bucket.retry_s else _batch(waiting)
            some, waiting = waiting[:count], waiting[count:]
            began = time.monotonic()
            if not await self._upload_some(bucket, some):
                return
            await self._rest(time.monotonic() - began)

    async def _upload_some(self, bucket: _Bucket, files: Sequence[_Complete]) -> bool:
        """Upload files; False if one cannot be now."""
        missing = [file.path for file in files if file.path not in self._converted]
        if missing and not await self._convert_files(bucket, missing):
            return False
        for index, file in enumerate(files):
            if not await self._upload_one(bucket, file):
                await asyncio.to_thread(self._forget_records, files[index + 1 :])
                return False
        return True

    async def _rest(self, worked_s: float) -> None:
        """Leave the processors to others for a while, unless the host is to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(self._rest_factor * worked_s, _LONGEST_REST_S)):
                await self._stopping.wait()

    def _forget_records(self, files: Sequence[_Complete]) -> None:
        """Remove what was made of files that will have to wait, as it takes as much room again."""
        for file in files:
            self._converted.pop(file.path, None)
            file.path.with_suffix(RECORDS).unlink(missing_ok=True)

    async def _convert_files(self, bucket: _Bucket, paths: Sequence[Path]) -> bool:
        try:
            converted = await asyncio.to_thread(self._convert, paths)
        except (ConversionError, OSError) as error:
            logger.error("data capture: records cannot be made: %s", error)
            self._put_off(bucket)
            return False
        self._converted.update(zip(paths, converted, strict=True))
        return True

    async def _upload_one(self, bucket: _Bucket, file: _Complete) -> bool:
        """Upload a file; False if that cannot be now."""
        place, converted = file.place, self._converted[file.path]
        url = place.url(file.path.stem)
        if converted.count:
            try:
                await self._write(place.account, url, converted.path)
            except (ApiError, OSError) as error:
                self._failed(bucket, place, error)
                return False
        if bucket.retry_s:
            logger.info("data capture: records are written to s3://%s again", place.bucket)
            bucket.retry_s = bucket.retry_at = 0
        del self._converted[file.path]
        await asyncio.to_thread(self._remove, file.path)
        self._count(
            place, InvocationCounts(capture_uploaded=converted.count, capture_dropped=int(converted.cut))
        )
        return True

    def _failed(self, bucket: _Bucket, place: CapturePlace, error: Exception) -> None:
        if not bucket.retry_s:
            reason = error.message if isinstance(error, ApiError) else error
            msg = "data capture of endpoint '%s': %s; it is tried again, and up to %d MiB of records are kept"
            logger.error(msg, place.endpoint, reason, self._settings.spool_bytes // _MIB)
        self._count(place, InvocationCounts(capture_upload_failures=1))
        self._put_off(bucket)

    def _put_off(self, bucket: _Bucket) -> None:
        settings = self._settings
        bucket.retry_s = min(max(2 * bucket.retry_s, settings.retry_s), settings.longest_retry_s)
        bucket.retry_at = self._now() + bucket.retry_s

    def _count(self, place: CapturePlace, counts: InvocationCounts) -> None:
        self._absorb(EndpointId(place.account, place.region, place.endpoint), place.variant, counts)


def _batch(files: Sequence[_Complete]) -> int:
    """How many of the files are made into records together, at least one."""
    left = _BYTES_AT_A_TIME
    for count, file in enumerate(files[:_AT_A_TIME], start=1):
        left -= file.size
        if left <= 0:
            return count
    return min(len(files), _AT_A_TIME)
