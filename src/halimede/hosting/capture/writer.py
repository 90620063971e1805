"""What is captured on its way to spool files: collected on the event loop, written by a thread, many at a time."""

import asyncio
import logging
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from errno import EDQUOT, ENOSPC
from pathlib import Path
from uuid import UUID

from halimede.core import tasks
from halimede.core.clock import WALL_CLOCK
from halimede.hosting.budget import Budget
from halimede.hosting.capture.captured import Captured, CaptureMeter
from halimede.hosting.capture.settings import CaptureSettings
from halimede.hosting.capture.spool import CapturePlace, SpoolFile, frame
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.taps import Observer, Tap
from halimede.hosting.specs import DataCapture, Variant
from halimede.http1.head import Head

logger = logging.getLogger("halimede")

_RESUME = 1.25
"""Capture that stopped as the disk was nearly full goes on with so many times the room."""

_MEASURE_S = 1.0
"""How often it is looked at what all processes have written."""

_LOG_AGAIN_S = 60.0
"""A failure is told again if there was none for so long."""


class SpoolRoom:
    """Whether more may be written: what waits is bounded, and the disk is not to be filled. Blocks.

    Attributes:
        is_full: there was no room when it was last looked at.
    """

    def __init__(self, directory: Path, settings: CaptureSettings, now: Callable[[], float]) -> None:
        self._directory = directory
        self._settings = settings
        self._now = now
        self._measured = -_MEASURE_S
        self._total = 0
        self._is_disk_full = False
        self.is_full = False

    def check(self, size: int) -> None:
        """Return if there is room for so many bytes.

        Raises:
            OSError: there is none, or there is no directory.
        """
        try:
            self._check(size)
        except OSError:
            self.is_full = True
            raise
        self.is_full = False

    def _check(self, size: int) -> None:
        settings = self._settings
        wanted = settings.free_bytes * (_RESUME if self._is_disk_full else 1)
        self._is_disk_full = shutil.disk_usage(self._directory).free < wanted
        if self._is_disk_full:
            raise OSError(ENOSPC, "the disk is nearly full")
        now = self._now()
        if not 0 <= now - self._measured < _MEASURE_S:
            with os.scandir(self._directory) as entries:
                self._total = sum(map(_size, entries))
            self._measured = now
        if self._total + size > settings.spool_bytes:
            raise OSError(EDQUOT, f"{settings.spool_bytes >> 20} MiB wait to be uploaded")

    def took(self, size: int) -> None:
        """So many bytes were written."""
        self._total += size


def _size(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


class SpoolWriter:
    """Writes what is captured in this process. Lives on the event loop."""

    def __init__(
        self,
        directory: Path,
        settings: CaptureSettings,
        now: Callable[[], float] = WALL_CLOCK.now,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Writes nothing before there is something.

        Args:
            directory: of all spool files; it is made when there is one.
            settings: limits.
            now: the time, in seconds since 1970.
            chance: at least 0 and less than 1, another one each time.
        """
        self.memory = Budget(settings.memory_bytes)
        self._settings = settings
        self._files = SpoolFiles(directory, settings, now)
        self._chance = chance
        self._waiting: list[Captured] = []
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._age_timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "halimede-capture")

    def observers(self, endpoint: EndpointId, variant: Variant, meter: CaptureMeter) -> Sequence[Observer]:
        """What captures the invocations of a variant; nothing if that is not wanted."""
        spec = variant.capture
        if spec is None:
            return ()
        place = CapturePlace(*endpoint, variant.name, spec.destination)
        return (_CaptureObserver(self, place, spec, meter, self._settings.record_bytes, self._chance),)

    def put(self, captured: Captured) -> None:
        """Have it written soon."""
        self._waiting.append(captured)
        self._waiting_bytes += captured.size
        if self._writing is not None:
            return
        if self._waiting_bytes >= self._settings.flush_bytes:
            self._write()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._settings.flush_s, self._write)

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._age_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._age_timer = None

    def _write(self) -> None:
        self._cancel_timers()
        if self._writing is None:
            self._writing = tasks.start("data capture: writing", self._write_waiting())
            self._writing.add_done_callback(self._written)

    async def _write_waiting(self) -> None:
        batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
        loop = asyncio.get_running_loop()
        try:
            lost = set(map(id, await loop.run_in_executor(self._thread, self._files.write, batch)))
        except Exception:  # of what is captured, and the log has what nobody foresaw
            logger.exception("data capture: %d records are lost", len(batch))
            lost = set(map(id, batch))
        done: Counter[CaptureMeter] = Counter()
        dropped: Counter[CaptureMeter] = Counter()
        for captured in batch:
            (dropped if id(captured) in lost else done)[captured.meter] += 1
            captured.forget()
        for meter, count in done.items():
            meter.captured(count)
        for meter, count in dropped.items():
            meter.capture_dropped(count)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if self._waiting_bytes >= self._settings.flush_bytes:
            self._write()
        elif self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._settings.flush_s, self._write)
        elif self._files.is_open:
            self._age_timer = asyncio.get_running_loop().call_later(self._settings.file_s / 4, self._write)

    async def flush(self) -> None:
        """Return when all that was put is on disk, or lost."""
        while self._waiting or self._writing is not None:
            self._write()
            assert self._writing is not None
            await asyncio.wait([self._writing])
            await asyncio.sleep(0)  # for what is done when it is done

    async def close(self) -> None:
        """Write what is waiting, and complete all files."""
        await self.flush()
        self._cancel_timers()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._files.close)
        self._thread.shutdown()

    @property
    def is_stopped(self) -> bool:
        """Whether there was no room on the disk when it was last looked at."""
        return self._files.room.is_full


class _CaptureObserver:
    """Captures invocations of a variant (`Observer`)."""

    def __init__(
        self,
        writer: SpoolWriter,
        place: CapturePlace,
        spec: DataCapture,
        meter: CaptureMeter,
        limit: int,
        chance: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._place = place
        self._spec = spec
        self._meter = meter
        self._limit = limit
        self._share = spec.percentage / 100
        self._chance = chance

    def observe(self, head: Head, *, streamed: bool) -> Tap | None:
        """Capture it, if it is its turn."""
        if self._chance() >= self._share:
            return None
        writer = self._writer
        return Captured(self._place, self._spec, self._meter, head, writer.memory, self._limit, writer.put)


class SpoolFiles:
    """The files that this process writes, one for each place. Only one thread may call it.

    Attributes:
        room: whether there is room on the disk.
    """

    def __init__(self, directory: Path, settings: CaptureSettings, now: Callable[[], float]) -> None:
        self.room = SpoolRoom(directory, settings, now)
        self._directory = directory
        self._settings = settings
        self._now = now
        self._files: dict[CapturePlace, SpoolFile] = {}
        self._failed = -_LOG_AGAIN_S

    @property
    def is_open(self) -> bool:
        """Whether a file is being written."""
        return bool(self._files)

    def write(self, batch: Iterable[Captured]) -> list[Captured]:
        """Write what was captured; those that could not be. Files that are large or old become complete."""
        by_place: dict[CapturePlace, list[Captured]] = {}
        for captured in batch:
            by_place.setdefault(captured.place, []).append(captured)
        lost: list[Captured] = []
        for place, each in by_place.items():
            for part in _parts(each, self._settings.flush_bytes):
                try:
                    self._write(place, part)
                except OSError as error:
                    self._fail(error)
                    lost += part
        self._complete_old()
        return lost

    def _fail(self, error: OSError) -> None:
        now = self._now()
        if not 0 <= now - self._failed < _LOG_AGAIN_S:
            reason = error.strerror or error
            logger.error(
                "data capture: records are dropped, as %s cannot take them: %s", self._directory, reason
            )
        self._failed = now

    def _write(self, place: CapturePlace, batch: Sequence[Captured]) -> None:
        file = self._files.get(place)
        if file is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.room.check(sum(captured.size for captured in batch))
        if file is None:
            file = self._files[place] = SpoolFile(self._directory, place, self._now())
        buffers: list[bytes] = []
        for captured in batch:
            event = str(UUID(bytes=os.urandom(16), version=4))
            buffers += frame(captured.about(event), captured.asked, captured.answered)
        before = file.size
        try:
            file.write(buffers)
        except OSError:
            del self._files[place]
            file.abandon()
            raise
        self.room.took(file.size - before)
        if file.size >= self._settings.file_bytes:
            del self._files[place]
            self._complete(file)

    def _complete_old(self) -> None:
        now = self._now()
        for place, file in list(self._files.items()):
            if now - file.begun >= self._settings.file_s:
                del self._files[place]
                self._complete(file)

    def _complete(self, file: SpoolFile) -> None:
        try:
            file.close()
        except OSError as error:
            logger.error("data capture: a spool file is lost: %s", error.strerror or error)

    def close(self) -> None:
        """Complete all files."""
        while self._files:
            _, file = self._files.popitem()
            self._complete(file)


def _parts(batch: Iterable[Captured], size: int) -> Iterator[list[Captured]]:
    """The batch in parts that are not much larger than so many bytes."""
    part: list[Captured] = []
    left = size
    for captured in batch:
        part.append(captured)
        left -= captured.size
        if left <= 0:
            yield part
            part, left = [], size
    if part:
        yield part
