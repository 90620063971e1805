"""The models of one instance: fetched, loaded, unloaded and removed, one step of each model at a time.

absent ─ downloading ─ on disk ─ loading ─ loaded
                          ▲                   │
                │         └──── unloading ◄───┘   when another needs the room, the least recently used first
                └─ removing: when the disk is nearly full, the least recently used first
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import monotonic_ns
from typing import Any

import orjson

from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.http.call import CallError, call
from halimede.hosting.routing.meters import ModelMeter
from halimede.hosting.routing.residency.entry import Entry, State, hash_of
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.table import Target
from halimede.hosting.specs import Variant
from halimede.hosting.store.source import ModelSource
from halimede.hosting.substrates.base import ModelFiles, RunningInstance

logger = logging.getLogger("halimede")

_OK, _CONFLICT, _NOT_FOUND, _NO_ROOM = 200, 409, 404, 507
_TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"


class Holder:
    """The models of one instance. Lives on the event loop.

    Attributes:
        target: the instance, as requests see it.
        entries: model → what is known of it.
        gone: the instance takes no requests any more.
    """

    def __init__(
        self,
        target: Target,
        instance: RunningInstance,
        files: ModelFiles,
        variant: Variant,
        source: ModelSource,
        meter: ModelMeter,
        settings: ResidencySettings,
        on_changed: Callable[["Holder", Entry], None],
    ) -> None:
        """The table of an instance that holds nothing yet.

        Args:
            target: the instance, as requests see it.
            instance: the instance.
            files: its extracted archives.
            variant: what it serves.
            source: where archives come from.
            meter: counts downloads, loads and unloads.
            settings: how models are kept.
            on_changed: told when a model is there, or could not be loaded.
        """
        self.target = target
        self.entries: dict[str, Entry] = {}
        self.gone = False
        self._instance = instance
        self._files = files
        self._variant = variant
        self._source = source
        self._meter = meter
        self._settings = settings
        self._on_changed = on_changed
        self._budget = int(instance.request.resources.memory_bytes * settings.memory_share)
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Lock()  # one model at a time makes room and is loaded
        self._changed = asyncio.Event()

    @property
    def loaded(self) -> int:
        """How many models it holds."""
        return sum(entry.state is State.LOADED for entry in self.entries.values())

    @property
    def used_bytes(self) -> int:
        """What its models take of the memory, as far as that is known."""
        held = (State.LOADING, State.LOADED, State.UNLOADING)
        return sum(entry.memory_bytes for entry in self.entries.values() if entry.state in held)

    @property
    def free_bytes(self) -> int:
        """What of its memory models may still take."""
        return self._budget - self.used_bytes

    def has_room(self, model: str) -> bool:
        """Whether the model could be loaded without another going, as far as that is known."""
        entry = self.entries.get(model)
        return self.free_bytes > (0 if entry is None else entry.memory_bytes)

    def forget(self, before_ns: int) -> None:
        """Forget models that could not be brought before then, so that wrong names do not pile up."""
        for entry in [each for each in self.entries.values() if each.is_forgettable(before_ns)]:
            del self.entries[entry.model]

    def entry(self, model: str) -> Entry:
        """What is known of a model."""
        entry = self.entries.get(model)
        if entry is None:
            name = hash_of(model)
            entry = self.entries[model] = Entry(model, name)
        return entry

    def load(self, entry: Entry) -> None:
        """Have the model loaded, unless that is under way already."""
        if not entry.load_pending:
            entry.load_pending = True
            self._start(self._load(entry))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, entry: Entry) -> None:
        entry.failure = None
        try:
            async with asyncio.timeout(self._settings.load_timeout_s):
                while entry.state in (State.UNLOADING, State.REMOVING):
                    await self._wait_for_change()
                await self._fetch(entry)
                async with self._room:
                    entry.state = State.LOADING
                    await self._load_on_instance(entry)
        except ApiError as error:
            self._failed(entry, error)
        except TimeoutError:
            seconds = self._settings.load_timeout_s
            self._failed(entry, _not_loaded(entry, 0, f"it took more than {seconds:g} seconds"))
        except CallError as error:
            self._failed(entry, _not_loaded(entry, 0, str(error)))
        except Exception as error:  # of one model; those that wait for it must hear of it
            logger.exception("model '%s' of instance %s could not be loaded", entry.model, self.target.id)
            self._failed(
                entry, ApiError("InternalFailure", f"model '{entry.model}' could not be loaded: {error}", 500)
            )
        else:
            entry.state = State.LOADED
            entry.used_ns = monotonic_ns()
        entry.load_pending = False
        self._notify_change()
        self._on_changed(self, entry)

    def _failed(self, entry: Entry, error: ApiError) -> None:
        entry.failure = error
        entry.failed_ns = 0 if isinstance(error, _AbsentError) else monotonic_ns()
        entry.state = State.ON_DISK if entry.has_files else State.ABSENT
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
        entry.state = State.DOWNLOADING
        await self._remove(entry)
        entry.disk_bytes = int(info.size * self._settings.footprint_factor)
        await self._make_disk_room()
        began = monotonic_ns()
        entry.has_files = True
        try:
            entry.disk_bytes = await self._files.fetch(
                entry.hash, url, self._source, self._variant.download_timeout_s
            )
        except BaseException as error:
            await self._remove(entry)
            if isinstance(error, ApiError):
                raise _of_runtime(error) from None
            raise
        entry.etag = info.etag
        entry.state = State.ON_DISK
        if not entry.is_measured:
            entry.memory_bytes = int(entry.disk_bytes * self._settings.footprint_factor)
        self._meter.downloaded(monotonic_ns() - began)

    async def _make_disk_room(self) -> None:
        """Remove files of models that are not loaded, if the volume would be nearly full otherwise."""
        volume = self._variant.volume_bytes
        if not volume:
            return
        limit = volume * self._settings.disk_high
        while sum(each.disk_bytes for each in self.entries.values()) > limit:
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
        entry.disk_bytes = 0
        entry.etag = ""
        await self._files.remove(entry.hash)
        entry.has_files = False

    async def _drop(self, entry: Entry) -> None:
        """Remove the files of a model that nobody waits for; who asks for it now waits until they are gone."""
        entry.state = State.REMOVING
        try:
            await self._remove(entry)
        finally:
            entry.state = State.ABSENT
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
        headers = {_TARGET_MODEL: entry.model, "Content-Type": "application/json"}
        body = orjson.dumps(
            {"model_name": entry.hash, "url": f"{self._instance.seen_models}/{entry.hash}/model"}
        )
        for _ in range(self._settings.rounds):
            before = await self._files.memory()
            began = monotonic_ns()
            status, text = await call(
                self.target.pool, "POST", "/models", body, headers, self._settings.load_timeout_s
            )
            if status in (_OK, _CONFLICT):
                self._meter.loaded(monotonic_ns() - began)
                after = await self._files.memory()
                if status == _OK and after > before:
                    entry.memory_bytes, entry.is_measured = after - before, True
                return
            if status != _NO_ROOM or not await self._evict(wanted):
                raise _not_loaded(entry, status, text.decode(errors="replace"))
            wanted *= 2
        raise _not_loaded(entry, _NO_ROOM, text.decode(errors="replace"))

    async def _evict(self, size: int) -> int:
        """Unload idle models, the least recently used first, until so many bytes are free: how many were unloaded."""
        count = 0
        while size > 0:
            idle = self._idle()
            if not idle:
                break
            victim = min(idle, key=lambda other: other.used_ns)
            size -= max(victim.memory_bytes, 1)
            count += 1
            await self._unload(victim)
        return count

    def _idle(self, but: Entry | None = None) -> list[Entry]:
        """The models that could be unloaded, except one."""
        loaded = [each for each in self.entries.values() if each.state is State.LOADED]
        return [each for each in loaded if not each.pins and each is not but]

    async def _unload(self, entry: Entry) -> None:
        """Have the instance unload an idle model."""
        entry.state = State.UNLOADING
        began = monotonic_ns()
        try:
            status, text = await call(
                self.target.pool, "DELETE", f"/models/{entry.hash}", b"", {_TARGET_MODEL: entry.model},
                self._settings.unload_timeout_s,
            )  # fmt: skip
            if status not in (_OK, _NOT_FOUND):
                logger.warning(
                    "instance %s: unloading model '%s' was answered %d: %s",
                    self.target.id, entry.model, status, text.decode(errors="replace"),
                )  # fmt: skip
        except CallError as error:
            logger.warning("instance %s: unloading model '%s': %s", self.target.id, entry.model, error)
        else:
            self._meter.unloaded(monotonic_ns() - began)
        finally:
            entry.state = State.ON_DISK if entry.has_files else State.ABSENT
            self._notify_change()

    def released(self, entry: Entry) -> None:
        """A request for the model has been answered; where models are not kept, it goes when it is idle."""
        entry.pins -= 1
        if self.gone:
            return
        if not entry.freeing_memory:
            entry.freeing_bytes = 0
        if entry.pins < self._settings.spill_inflight:
            entry.busy_since_ns = 0
        kept = self._variant.container.model_cache
        if not kept and not entry.pins and not entry.waiters and entry.state is State.LOADED:
            entry.state = State.UNLOADING
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
                entry.state = State.ON_DISK
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
        finally:
            entry.pins -= 1
            entry.freeing_memory = False
        self._on_changed(self, entry)

    async def close(self) -> None:
        """The instance is gone, or about to go: end what is under way."""
        self.gone = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


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
