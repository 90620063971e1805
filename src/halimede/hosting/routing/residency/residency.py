"""Which instances of a multi-model variant hold which models, and where a request for one goes.

A model that instances hold is asked of them, and of the one with the fewest requests if there are several; another is
brought to the instance that its name says, once, however many ask for it. A model that keeps an instance busy is loaded
by another one too.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic_ns

from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.routing.meters import ModelMeter, NoModelMeter
from halimede.hosting.routing.residency.entry import Entry, State, Waiter
from halimede.hosting.routing.residency.holder import Holder
from halimede.hosting.routing.residency.placement_hash import ranked
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.table import OnPlaced, Placement, Target, VariantRoute
from halimede.hosting.store.source import ModelSource
from halimede.hosting.substrates.base import ModelFiles, RunningInstance
from halimede.hosting.substrates.model_files import LocalModelFiles

_TICK_S = 0.1
"""How exact deadlines of waiting requests are."""

_LONGEST_NAME = 1024


class MultiModelResidency:
    """The models of one variant (`table.Residency`). Lives on the event loop."""

    def __init__(
        self,
        route: VariantRoute,
        source: ModelSource,
        meter: ModelMeter | None = None,
        settings: ResidencySettings | None = None,
        files: Callable[[RunningInstance], ModelFiles] = LocalModelFiles,
    ) -> None:
        """The models of a variant that has no instances yet; `files` are an instance's extracted archives."""
        self._route = route
        self._source = source
        self._meter = meter or NoModelMeter()
        self._settings = settings or ResidencySettings()
        self._files = files
        self._holders: dict[str, Holder] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._check_deadlines)

    def loaded_counts(self) -> Mapping[str, int]:
        """Instance → how many models it holds."""
        return {name: holder.loaded for name, holder in self._holders.items()}

    # requests

    def place(self, model: str, deadline_ns: int, on_placed: OnPlaced) -> Placement | None:
        """Where a request for a model goes; see `table.Residency`."""
        wrong = _wrong_name(model)
        if wrong:
            on_placed(invalid_invocation(wrong))
            return None
        able = [holder for holder in self._holders.values() if not holder.target.draining]
        if not able:
            msg = f"Variant {self._route.spec.name} has no instance that takes requests now; try again later"
            on_placed(ApiError("ServiceUnavailable", msg, 503))
            return None
        holding = [
            holder for holder in able if (entry := holder.entries.get(model)) is not None and entry.is_ready
        ]
        if holding:
            holder = min(holding, key=lambda each: each.entries[model].pins)
            self._spill(model, holder, able, holding)
            return self._placement(holder, holder.entries[model], hit=True)
        holder = self._place_for(model, able)
        entry = holder.entry(model)
        age = monotonic_ns() - entry.failed_ns
        if entry.failure is not None and age < self._settings.failure_s * 1e9:
            on_placed(entry.failure)
            return None
        entry.used_ns = monotonic_ns()
        entry.waiters.append(Waiter(on_placed, deadline_ns))
        if not entry.freeing_memory:
            holder.load(entry)
        return None

    def _place_for(self, model: str, able: list[Holder]) -> Holder:
        """The instance that is to have a model which none has: one that is about to, or the one that its name says.

        An instance that would have to unload another model comes after those that would not.
        """
        for holder in able:
            entry = holder.entries.get(model)
            if entry is not None and (entry.load_pending or entry.freeing_memory):
                return holder
        order = [self._holders[target.id] for target in ranked(model, [holder.target for holder in able])]
        return next((holder for holder in order if holder.has_room(model)), order[0])

    def _spill(self, model: str, holder: Holder, able: list[Holder], holding: list[Holder]) -> None:
        """Have another instance load a model that has kept all that hold it busy for a while."""
        entry = holder.entries[model]
        if entry.pins < self._settings.spill_inflight or len(holding) == len(able):
            return
        now = monotonic_ns()
        if not entry.busy_since_ns:
            entry.busy_since_ns = now
        elif now - entry.busy_since_ns > self._settings.spill_s * 1e9:
            entry.busy_since_ns = 0
            others = [each.target for each in able if each not in holding]
            other = self._holders[ranked(model, others)[0].id]
            other.load(other.entry(model))

    def _placement(self, holder: Holder, entry: Entry, *, hit: bool) -> Placement:
        entry.pins += 1
        entry.used_ns = monotonic_ns()
        return Placement(
            holder.target,
            f"/models/{entry.hash}/invoke",
            hit,
            lambda: holder.released(entry),
            lambda status: holder.handle_not_run(entry, status),
        )

    def cancel(self, on_placed: OnPlaced) -> None:
        """The client has gone; a load that has begun goes on."""
        for holder in self._holders.values():
            for entry in holder.entries.values():
                entry.waiters = [waiter for waiter in entry.waiters if waiter.on_placed != on_placed]

    def _changed(self, holder: Holder, entry: Entry) -> None:
        """A model is there, or could not be loaded: tell those that wait for it."""
        waiters, entry.waiters = entry.waiters, []
        if entry.state is State.LOADED:
            # all are pinned before the first is told: it must not be unloaded when that one is answered
            placements = [self._placement(holder, entry, hit=False) for _ in waiters]
            for waiter, placement in zip(waiters, placements, strict=True):
                waiter.on_placed(placement)
        elif entry.failure is not None:
            for waiter in waiters:
                waiter.on_placed(entry.failure)
        else:  # it went while others made room for it
            self._place_again(entry.model, waiters)

    def _place_again(self, model: str, waiters: list[Waiter]) -> None:
        for waiter in waiters:
            placement = self.place(model, waiter.deadline_ns, waiter.on_placed)
            if placement is not None:
                waiter.on_placed(placement)

    def _check_deadlines(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._check_deadlines)
        now = monotonic_ns()
        for holder in self._holders.values():
            for entry in list(holder.entries.values()):
                if entry.waiters:
                    self._expire(entry, now)
            holder.forget(now - int(self._settings.failure_s * 1e9))

    def _expire(self, entry: Entry, now: int) -> None:
        late = [waiter for waiter in entry.waiters if waiter.deadline_ns <= now]
        if not late:
            return
        entry.waiters = [waiter for waiter in entry.waiters if waiter.deadline_ns > now]
        msg = (
            f"Model '{entry.model}' is not ready for inference yet: {entry.state.value}. It goes on; try again in a "
            f"moment"
        )
        for waiter in late:
            waiter.on_placed(ApiError("ModelNotReadyException", msg, 429))

    # instances

    def joined(self, target: Target, instance: RunningInstance) -> None:
        """An instance takes requests from now on."""
        self._holders[target.id] = Holder(
            target, instance, self._files(instance), self._route.spec, self._source, self._meter,
            self._settings, self._changed,
        )  # fmt: skip

    def left(self, target: Target) -> None:
        """An instance takes none any more: what waited there is placed elsewhere."""
        holder = self._holders.pop(target.id, None)
        if holder is None:
            return
        task = asyncio.get_running_loop().create_task(holder.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        for entry in holder.entries.values():
            waiters, entry.waiters = entry.waiters, []
            self._place_again(entry.model, waiters)

    async def close(self) -> None:
        """No more requests come: end what is under way. What still waits is told to go elsewhere."""
        self._timer.cancel()
        for holder in list(self._holders.values()):
            self.left(holder.target)
        await asyncio.gather(*self._closing)


def _wrong_name(model: str) -> str:
    """What is wrong with the path of a model, "" for nothing."""
    if len(model) > _LONGEST_NAME or not model.isprintable():
        return f"TargetModel has {len(model)} characters; it may have {_LONGEST_NAME}, all of them printable"
    parts = model.split("/")
    if any(part in ("..", ".") for part in parts) or not parts[-1]:
        return f"TargetModel '{model}' is no path of an archive below the endpoint's prefix, such as model.tar.gz"
    return ""
