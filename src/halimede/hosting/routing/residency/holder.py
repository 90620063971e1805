"""The models of one instance: fetched, loaded, unloaded and removed, one step of each model at a time.

absent ─ downloading ─ on disk ─ loading ─ loaded
                          ▲                   │
                │         └──── unloading ◄───┘   when another needs the room, the least popular first
                └─ removing: when the disk is nearly full, the least recently used first
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from halimede.core.tasks import Tasks
from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.routing.meters import ModelMeter
from halimede.hosting.routing.residency.entry import IN_MEMORY, Entry, State, hash_of
from halimede.hosting.routing.residency.model_calls import ModelCalls
from halimede.hosting.routing.residency.popularity import Popularity
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.table import Target
from halimede.hosting.specs import Variant
from halimede.hosting.store.source import ModelSource
from halimede.hosting.substrates.base import ModelFiles, NodeUnreachableError, RunningInstance
from halimede.http1.client import CallError

logger = logging.getLogger("halimede")

_OK, _CONFLICT, _NOT_FOUND, _NO_ROOM = 200, 409, 404, 507


class Holder:
    """The models of one instance. Lives on the event loop.

    Attributes:
        target: the instance, as requests see it.
        node: the machine that its files are on; "" if there is only this one.
        entries: model → what is known of it.
        used_bytes: what its models take of the memory, as far as that is known.
        room_bytes: what of its memory models may still take that it has not been asked to load yet.
        gone: the instance takes no requests any more.
    """

    def __init__(
        self,
        target: Target,
        instance: RunningInstance,
        files: ModelFiles,
        calls: ModelCalls,
        variant: Variant,
        source: ModelSource,
        meter: ModelMeter,
        settings: ResidencySettings,
        now: Callable[[], int],
        on_changed: Callable[["Holder", Entry], None],
        on_room: Callable[["Holder"], None],
    ) -> None:
        """The table of an instance that holds nothing yet.

        Args:
            target: the instance, as requests see it.
            instance: the instance.
            files: its extracted archives.
            calls: has it load and unload models.
            variant: what it serves.
            source: where archives come from.
            meter: counts downloads, loads and unloads.
            settings: how models are kept.
            now: the monotonic clock, in nanoseconds.
            on_changed: told when a model is there, or could not be loaded.
            on_room: told when `room_bytes` has changed.
        """
        self.target = target
        self.node = files.node
        self.entries: dict[str, Entry] = {}
        self.used_bytes = 0
        self.gone = False
        self._files = files
        self._calls = calls
        self._variant = variant
        self._source = source
        self._meter = meter
        self._settings = settings
        self._now = now
        self._on_changed = on_changed
        self._on_room = on_room
        self._popularity = Popularity(settings)
        self._budget = int(instance.request.resources.memory_bytes * settings.memory_share)
        self.room_bytes = self._budget
        self._loaded: dict[Entry, None] = {}
        self._absent: dict[Entry, None] = {}  # in the order in which they came to be so
        self._promised: dict[Entry, int] = {}  # what those take that are to be loaded
        self._disk_bytes = 0
        self._tasks = Tasks()
        self._room = asyncio.Lock()  # one model at a time makes room and is loaded
        self._changed = asyncio.Event()

    @property
    def loaded(self) -> int:
        """How many models it holds."""
        return len(self._loaded)

    @property
    def free_bytes(self) -> int:
        """What of its memory models may still take."""
        return self._budget - self.used_bytes

    def forget(self, before_ns: int) -> list[Entry]:
        """Forget models that could not be brought before then, so that wrong names do not pile up: which those are."""
        if not self._absent:
            return []
        forgotten = [entry for entry in self._absent if entry.is_forgettable(before_ns)]
        for entry in forgotten:
            del self._absent[entry]
            del self.entries[entry.model]
        return forgotten

    def entry(self, model: str) -> Entry:
        """What is known of a model."""
        entry = self.entries.get(model)
        if entry is None:
            entry = self.entries[model] = Entry(self.target, model, hash_of(model))
            self._absent[entry] = None
        return entry

    def asked(self, entry: Entry) -> None:
        """A request for the model has come."""
        entry.used_ns = self._now()
        self._popularity.asked(entry, len(self._loaded))

    # what changes of a model

    def _become(self, entry: Entry, state: State) -> None:
        before, entry.state = entry.state, state
        if state is State.LOADED:
            self._loaded[entry] = None
        elif before is State.LOADED:
            del self._loaded[entry]
        if state is State.ABSENT:
            self._absent[entry] = None
        elif before is State.ABSENT:
            del self._absent[entry]
        if (before in IN_MEMORY) is not (state in IN_MEMORY):
            self.used_bytes += entry.memory_bytes if state in IN_MEMORY else -entry.memory_bytes
            self._promised.pop(entry, None)
            self._count_room()

    def _set_memory(self, entry: Entry, size: int) -> None:
        if entry.state in IN_MEMORY:
            self.used_bytes += size - entry.memory_bytes
        entry.memory_bytes = size
        if entry in self._promised:
            self._promised[entry] = size
        self._count_room()

    def _set_disk(self, entry: Entry, size: int) -> None:
        self._disk_bytes += size - entry.disk_bytes
        entry.disk_bytes = size

    def _count_room(self) -> None:
        self.room_bytes = self.free_bytes - sum(self._promised.values())
        self._on_room(self)

    # loading

    def load(self, entry: Entry, memory_bytes: int) -> None:
        """Have the model loaded, unless that is under way already; it is expected to take so much memory."""
        if not entry.load_pending:
            entry.load_pending = True
            self._popularity.came(entry)
            self._promised[entry] = memory_bytes
            self._count_room()
            self._start(self._load(entry))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(f"loading or unloading a model of instance {self.target.id}", work)

    async def _load(self, entry: Entry) -> None:
        entry.failure = None
        try:
            async with asyncio.timeout(self._settings.load_timeout_s):
                while entry.state in (State.UNLOADING, State.REMOVING):
                    await self._wait_for_change()
                await self._fetch(entry)
                async with self._room:
                    self._become(entry, State.LOADING)
                    await self._load_on_instance(entry)
        except NodeUnreachableError as error:
            self._failed(entry, ElsewhereError(error, is_unreachable=True))
        except ApiError as error:
            self._failed(entry, error)
        except TimeoutError:
            seconds = self._settings.load_timeout_s
            self._failed(entry, _not_loaded(entry, 0, f"it took more than {seconds:g} seconds"))
        except CallError as error:
            self._failed(entry, ElsewhereError(_not_loaded(entry, 0, str(error)), is_unreachable=True))
        except Exception as error:  # of one model; those that wait for it must hear of it
            logger.exception("model '%s' of instance %s could not be loaded", entry.model, self.target.id)
            self._failed(
                entry, ApiError("InternalFailure", f"model '{entry.model}' could not be loaded: {error}", 500)
            )
        else:
            self._become(entry, State.LOADED)
            entry.used_ns = self._now()
        entry.load_pending = False
        if self._promised.pop(entry, 0):
            self._count_room()
        self._notify_change()
        self._on_changed(self, entry)

    def _failed(self, entry: Entry, error: ApiError) -> None:
        entry.failure = error
        entry.failed_ns = 0 if isinstance(error, _AbsentError) else self._now()
        self._become(entry, State.ON_DISK if entry.has_files else State.ABSENT)
        logger.warning("instance %s: model '%s': %s", self.target.id, entry.model, error.message)

    def _notify_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for_change(self) -> None:
        await self._changed.wait()

    # files

    async def _fetch(self, entry: Entry) -> None:
        """Have the files of the archive as it is now."""
        url = self._variant.container.model_data_url.rstrip("/") + "/" + entry.model.lstrip("/")
        try:
            info = await self._source.describe(url)
        except ApiError as error:
            raise _AbsentError(_of_runtime(error)) from None
        if entry.has_files and info.etag == entry.etag:
            return
        self._become(entry, State.DOWNLOADING)
        await self._remove(entry)
        self._set_disk(entry, int(info.size * self._settings.footprint_factor))
        await self._make_disk_room()
        began = self._now()
        entry.has_files = True
        try:
            size = await self._files.fetch(entry.hash, url, self._source, self._variant.download_timeout_s)
        except BaseException as error:
            await self._remove(entry)
            if isinstance(error, ApiError) and not isinstance(error, NodeUnreachableError):
                raise _of_runtime(error) from None
            raise
        entry.etag = info.etag
        self._set_disk(entry, size)
        self._become(entry, State.ON_DISK)
        if not entry.is_measured:
            self._set_memory(entry, int(size * self._settings.footprint_factor))
        self._meter.downloaded(self._now() - began)

    async def _make_disk_room(self) -> None:
        """Remove files of models that are not loaded, if the volume would be nearly full otherwise."""
        volume = self._variant.volume_bytes
        if not volume:
            return
        limit = volume * self._settings.disk_high
        while self._disk_bytes > limit:
            idle = [
                each
                for each in self.entries.values()
                if each.state is State.ON_DISK and not each.load_pending
            ]
            if not idle:
                break
            limit = volume * self._settings.disk_low
            await self._drop(min(idle, key=lambda each: each.used_ns))

    async def _remove(self, entry: Entry) -> None:
        """Remove what there is of files."""
        self._set_disk(entry, 0)
        entry.etag = ""
        await self._files.remove(entry.hash)
        entry.has_files = False

    async def _drop(self, entry: Entry) -> None:
        """Remove the files of a model that nobody waits for; who asks for it now waits until they are gone."""
        self._become(entry, State.REMOVING)
        try:
            await self._remove(entry)
        finally:
            self._become(entry, State.ABSENT)
            self._notify_change()

    # memory

    async def _load_on_instance(self, entry: Entry) -> None:
        """Have the instance load the model, making room until it fits.

        Raises:
            ApiError: it does not load.
            CallError: the instance does not answer.
        """
        await self._evict(-self.free_bytes)  # which counts the model already
        wanted = max(entry.memory_bytes, 1)
        for _ in range(self._settings.rounds):
            before = await self._files.memory()
            began = self._now()
            status, text = await self._calls.load(entry.model, entry.hash)
            if status in (_OK, _CONFLICT):
                self._meter.loaded(self._now() - began)
                after = await self._files.memory()
                if status == _OK and after > before:
                    self._set_memory(entry, after - before)
                    entry.is_measured = True
                return
            if status != _NO_ROOM:
                raise _not_loaded(entry, status, text)
            if not await self._evict(wanted):
                raise ElsewhereError(_not_loaded(entry, status, text), is_unreachable=False)
            wanted *= 2
        raise _not_loaded(entry, _NO_ROOM, text)

    async def _evict(self, size: int) -> int:
        """Unload idle models, the least popular first, until so many bytes are free: how many were unloaded."""
        count = 0
        while size > 0:
            idle = self._idle()
            if not idle:
                break
            victim = self._popularity.victim(idle, len(self._loaded))
            self._popularity.went(victim)
            size -= max(victim.memory_bytes, 1)
            count += 1
            await self._unload(victim)
        return count

    def _idle(self, but: Entry | None = None) -> list[Entry]:
        """The models that could be unloaded, except one."""
        return [each for each in self._loaded if not each.pins and each is not but]

    async def _unload(self, entry: Entry) -> None:
        """Have the instance unload an idle model."""
        self._become(entry, State.UNLOADING)
        began = self._now()
        try:
            status, text = await self._calls.unload(entry.model, entry.hash)
            if status not in (_OK, _NOT_FOUND):
                logger.warning(
                    "instance %s: unloading model '%s' was answered %d: %s",
                    self.target.id, entry.model, status, text,
                )  # fmt: skip
        except CallError as error:
            logger.warning("instance %s: unloading model '%s': %s", self.target.id, entry.model, error)
        else:
            self._meter.unloaded(self._now() - began)
        finally:
            self._become(entry, State.ON_DISK if entry.has_files else State.ABSENT)
            self._notify_change()

    def released(self, entry: Entry, *, has_run: bool) -> None:
        """A request for the model has been answered; where models are not kept, it goes when it is idle."""
        entry.pins -= 1
        if self.gone:
            return
        if has_run and not entry.freeing_memory:
            entry.freeing_bytes = 0
        if entry.pins < self._settings.spill_inflight:
            entry.busy_since_ns = 0
        kept = self._variant.container.model_cache
        if not kept and not entry.pins and not entry.waiting and entry.state is State.LOADED:
            self._become(entry, State.UNLOADING)
            self._start(self._discard(entry))

    async def _discard(self, entry: Entry) -> None:
        """Unload a model that nobody uses, and remove its files."""
        await self._unload(entry)
        if entry.state is State.ON_DISK and not entry.load_pending:
            await self._drop(entry)

    def handle_not_run(self, entry: Entry, status: int) -> bool:
        """The instance did not run the model: whether something is done about it.

        Args:
            entry: the model, which has a pin.
            status: 507 for a lack of memory, for which others must go; 404 if the instance does not know the model,
                which is to be loaded again.
        """
        if self.gone:
            return True
        if status == _NOT_FOUND:
            if entry.state is State.LOADED:
                self._become(entry, State.ON_DISK)
            return True
        if not entry.freeing_memory:
            if not self._idle(entry):
                return False
            entry.freeing_memory = True
            self._start(self._free_memory(entry))
        return True

    async def _free_memory(self, entry: Entry) -> None:
        """Unload others, twice as much each time until the model has run."""
        entry.pins += 1  # it stays itself
        try:
            async with self._room:
                size = entry.freeing_bytes or max(entry.memory_bytes, 1)
                entry.freeing_bytes = 2 * size
                await self._evict(size)
        except Exception:  # requests wait, which try it again or fail
            logger.exception("instance %s has no memory freed for model '%s'", self.target.id, entry.model)
        finally:
            entry.pins -= 1
            entry.freeing_memory = False
        self._on_changed(self, entry)

    async def close(self) -> None:
        """The instance is gone, or about to go: end what is under way."""
        self.gone = True
        await self._tasks.close()


class ElsewhereError(ApiError):
    """The instance does not answer, or has no room for a model and none to make. Another one may.

    Attributes:
        is_unreachable: it does not answer.
    """

    def __init__(self, error: ApiError, *, is_unreachable: bool) -> None:
        super().__init__(error.code, error.message, error.status, error.fields)
        self.is_unreachable = is_unreachable


class _AbsentError(ApiError):
    """There is no archive. Asking again costs little, and it may have been put there meanwhile."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.code, error.message, error.status, error.fields)


def _of_runtime(error: ApiError) -> ApiError:
    """The error as the runtime's clients know it."""
    return invalid_invocation(error.message) if error.code == "ValidationException" else error


def _not_loaded(entry: Entry, status: int, text: str) -> ApiError:
    """The instance could not load the model."""
    answer = f" ({status})" if status else ""
    message = f"Failed to load model '{entry.model}'{answer}: {text}"
    fields = {"OriginalStatusCode": status, "OriginalMessage": text}
    return ApiError("ModelError", message, 424, fields)
