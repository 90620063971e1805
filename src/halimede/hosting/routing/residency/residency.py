"""Which instances of a multi-model variant hold which models, and where a request for one goes.

A model that instances hold is asked of them, and of the one with the fewest requests if there are several; another is
brought to one instance (`Candidates.choose` says which), once, however many ask for it. A model that keeps an instance
busy is loaded by another one too.

A request for a model that is loaded costs as much as there are instances that hold it or its files, whatever the number
of instances and models.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic_ns

from halimede.core.tasks import Tasks
from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.routing.meters import ModelMeter, NoModelMeter
from halimede.hosting.routing.residency.candidates import Candidates
from halimede.hosting.routing.residency.entry import Entry, State, Waiter
from halimede.hosting.routing.residency.holder import ElsewhereError, Holder
from halimede.hosting.routing.residency.model_calls import HttpModelCalls, ModelCalls
from halimede.hosting.routing.residency.nodes import NodeArchives
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.residency.waiting import Waiting
from halimede.hosting.routing.table import UNREACHABLE, OnPlaced, Placement, Target, VariantRoute
from halimede.hosting.store.source import ModelSource
from halimede.hosting.substrates.base import ModelFiles, RunningInstance
from halimede.hosting.substrates.model_files import LocalModelFiles

_TICK_S = 0.1
"""How exact deadlines of waiting requests are."""

_FORGET_NS = 1_000_000_000
"""How often models are looked for of which nothing has to be known any more."""

_PLACES = 3
"""After so many instances that could not load a model, those that wait for it are told so."""

_LONGEST_NAME = 1024

CallsOf = Callable[[Target, RunningInstance, ResidencySettings], ModelCalls]
"""How an instance is asked to load and unload models."""


def _over_http(target: Target, instance: RunningInstance, settings: ResidencySettings) -> ModelCalls:
    return HttpModelCalls(target.pool, instance.seen_models, settings)


class MultiModelResidency:
    """The models of one variant (`table.Residency`). Lives on the event loop."""

    def __init__(
        self,
        route: VariantRoute,
        source: ModelSource,
        meter: ModelMeter | None = None,
        settings: ResidencySettings | None = None,
        files: Callable[[RunningInstance], ModelFiles] = LocalModelFiles,
        calls: CallsOf = _over_http,
        now: Callable[[], int] = monotonic_ns,
    ) -> None:
        """The models of a variant that has no instances yet.

        Args:
            route: the variant.
            source: where archives come from.
            meter: counts downloads, loads and unloads.
            settings: how models are kept.
            files: an instance's extracted archives.
            calls: how an instance is asked to load and unload models.
            now: the monotonic clock, in nanoseconds.
        """
        self._route = route
        self._source = source
        self._meter = meter or NoModelMeter()
        self._settings = settings or ResidencySettings()
        self._files = files
        self._calls = calls
        self._now = now
        self._holders: dict[str, Holder] = {}
        self._copies: dict[str, list[Entry]] = {}  # model → what instances have of it
        self._candidates = Candidates()
        self._nodes = NodeArchives(self._settings.node_archives)
        self._waiting = Waiting()
        self._typical_bytes = 0.0  # what a model takes of which nothing is known
        self._forget_at_ns = 0
        self._closing = Tasks()
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._check_deadlines)

    def loaded_counts(self) -> Mapping[str, int]:
        """Instance → how many models it holds."""
        return {name: holder.loaded for name, holder in self._holders.items()}

    def copies(self) -> Mapping[str, Sequence[Entry]]:
        """Model → what instances have of it, if only that they could not load it."""
        return self._copies

    def memory(self) -> Iterator[tuple[str, int, int, int]]:
        """Of each instance: its id, how many models it holds, the bytes that they take and may take."""
        for name, holder in self._holders.items():
            yield name, holder.loaded, holder.used_bytes, holder.used_bytes + holder.free_bytes

    # requests

    def place(self, model: str, deadline_ns: int, on_placed: OnPlaced) -> Placement | None:
        """Where a request for a model goes; see `table.Residency`."""
        copies = self._copies.get(model, ())
        chosen: Entry | None = None
        for entry in copies:
            if entry.is_ready and self._takes(entry.target) and (chosen is None or entry.pins < chosen.pins):
                chosen = entry
        if chosen is not None:
            if chosen.pins >= self._settings.spill_inflight:
                self._spill(model, chosen, copies)
            holder = self._holders[chosen.target.id]
            holder.asked(chosen)
            return self._placement(holder, chosen, hit=True)
        wrong = _wrong_name(model)
        if wrong:
            on_placed(invalid_invocation(wrong))
            return None
        new = self._holder_for(model, copies)
        if new is None:
            msg = f"Variant {self._route.spec.name} has no instance that takes requests now; try again later"
            on_placed(ApiError("ServiceUnavailable", msg, 503))
            return None
        entry = self._entry(new, model)
        age = self._now() - entry.failed_ns
        if entry.failure is not None and age < self._settings.failure_s * 1e9:
            on_placed(entry.failure)
            return None
        new.asked(entry)
        self._waiting.add(Waiter(on_placed, deadline_ns, entry))
        if not entry.freeing_memory:
            new.load(entry, self._expected_bytes(entry))
        return None

    def _takes(self, target: Target) -> bool:
        """Whether requests may be sent to an instance: one that accepts no connection gets none if others do."""
        if target.refuses:
            return all(holder.target.refuses for holder in self._holders.values())
        return not target.draining

    def _entry(self, holder: Holder, model: str) -> Entry:
        entry = holder.entries.get(model)
        if entry is None:
            entry = holder.entry(model)
            self._copies.setdefault(model, []).append(entry)
        return entry

    def _expected_bytes(self, entry: Entry | None) -> int:
        """What a model takes, or is expected to."""
        known = 0 if entry is None else entry.memory_bytes
        return known or int(self._typical_bytes)

    def _holder_for(self, model: str, copies: Sequence[Entry]) -> Holder | None:
        """The instance that is to have a model which none has: one that is about to, or the best; None for none."""
        for entry in copies:
            if (entry.load_pending or entry.freeing_memory) and self._takes(entry.target):
                return self._holders[entry.target.id]
        failing = self._failing(copies)
        other = self._choose(model, copies, failing) if len(failing) < _PLACES else None
        return other or self._choose(model, copies, {})

    def _failing(self, copies: Sequence[Entry]) -> dict[Holder, Entry]:
        """The instances that a moment ago did not answer or had no room when they were to load a model."""
        lately = self._now() - int(self._settings.failure_s * 1e9)
        return {
            self._holders[entry.target.id]: entry
            for entry in copies
            if isinstance(entry.failure, ElsewhereError) and entry.failed_ns > lately
        }

    def _choose(self, model: str, copies: Sequence[Entry], without: Mapping[Holder, Entry]) -> Holder | None:
        size = max((entry.memory_bytes for entry in copies), default=0) or int(self._typical_bytes)
        with_files = [self._holders[entry.target.id] for entry in copies if entry.has_files]
        gone = {holder.node for holder, entry in without.items() if _is_unreachable(entry) and holder.node}
        if not gone:
            return self._candidates.choose(model, size, with_files, self._nodes.of(model), without)
        # its machine may be gone, and the others there with it
        others = [holder for holder in self._holders.values() if holder.node in gone or holder in without]
        return self._candidates.choose(model, size, with_files, self._nodes.of(model), others)

    def _spill(self, model: str, entry: Entry, copies: Sequence[Entry]) -> None:
        """Have another instance load a model that has kept all that hold it busy for a while."""
        now = self._now()
        if not entry.busy_since_ns:
            entry.busy_since_ns = now
            return
        if now - entry.busy_since_ns <= self._settings.spill_s * 1e9:
            return
        entry.busy_since_ns = 0
        holding = {self._holders[each.target.id]: each for each in copies if each.is_ready}
        other = self._choose(model, copies, holding)
        if other is not None:
            new = self._entry(other, model)
            other.asked(new)
            other.load(new, self._expected_bytes(entry))

    def _placement(self, holder: Holder, entry: Entry, *, hit: bool) -> Placement:
        entry.pins += 1
        has_run = True

        def release() -> None:
            holder.released(entry, has_run=has_run)

        def failed(status: int) -> bool:
            nonlocal has_run
            has_run = False
            return self._not_run(holder, entry, status)

        return Placement(holder.target, f"/models/{entry.hash}/invoke", hit, release, failed)

    def _not_run(self, holder: Holder, entry: Entry, status: int) -> bool:
        """An instance did not run a request: whether something is done about it."""
        if status != UNREACHABLE:
            return holder.handle_not_run(entry, status)
        holder.target.refuse()
        return len(self._holders) > 1

    def cancel(self, on_placed: OnPlaced) -> None:
        """The client has gone; a load that has begun goes on."""
        self._waiting.cancel(on_placed)

    def _changed(self, holder: Holder, entry: Entry) -> None:
        """A model is there, or could not be loaded: tell those that wait for it."""
        waiters = self._waiting.take(entry)
        if entry.state is State.LOADED:
            self._loaded(holder, entry)
            # all are pinned before the first is told: it must not be unloaded when that one is answered
            placements = [self._placement(holder, entry, hit=False) for _ in waiters]
            for waiter, placement in zip(waiters, placements, strict=True):
                waiter.on_placed(placement)
        elif isinstance(entry.failure, ElsewhereError):
            if entry.failure.is_unreachable:
                holder.target.refuse()
            self._place_again(entry.model, waiters)
        elif entry.failure is not None:
            for waiter in waiters:
                waiter.on_placed(entry.failure)
        else:  # it went while others made room for it
            self._place_again(entry.model, waiters)

    def _loaded(self, holder: Holder, entry: Entry) -> None:
        """Learn what models take, and which machine has the archive."""
        if holder.node:
            self._nodes.fetched(holder.node, entry.model)
        share = 0.1 if self._typical_bytes else 1.0
        self._typical_bytes += share * (entry.memory_bytes - self._typical_bytes)

    def _place_again(self, model: str, waiters: list[Waiter]) -> None:
        for waiter in waiters:
            placement = self.place(model, waiter.deadline_ns, waiter.on_placed)
            if placement is not None:
                waiter.on_placed(placement)

    def _check_deadlines(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._check_deadlines)
        now = self._now()
        for waiter in self._waiting.expired(now):
            entry = waiter.entry
            msg = (
                f"Model '{entry.model}' is not ready for inference yet: {entry.state.value}. It goes on; try again "
                f"in a moment"
            )
            waiter.on_placed(ApiError("ModelNotReadyException", msg, 429))
        if now >= self._forget_at_ns:
            self._forget_at_ns = now + _FORGET_NS
            self._forget_absent(now - int(self._settings.failure_s * 1e9))

    def _forget_absent(self, before_ns: int) -> None:
        for holder in self._holders.values():
            for entry in holder.forget(before_ns):
                self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        copies = self._copies[entry.model]
        copies.remove(entry)
        if not copies:
            del self._copies[entry.model]

    # instances

    def joined(self, target: Target, instance: RunningInstance) -> None:
        """An instance takes requests from now on."""
        files, calls = self._files(instance), self._calls(target, instance, self._settings)
        holder = Holder(
            target, instance, files, calls, self._route.spec, self._source, self._meter, self._settings,
            self._now, self._changed, self._candidates.room_changed,
        )  # fmt: skip
        self._holders[target.id] = holder
        self._candidates.add(holder)
        self._nodes.joined(holder.node)

    def left(self, target: Target) -> None:
        """An instance takes none any more: what waited there is placed elsewhere."""
        holder = self._holders.pop(target.id, None)
        if holder is None:
            return
        self._candidates.remove(holder)
        self._nodes.left(holder.node)
        self._closing.start(f"forgetting the models of instance {target.id}", holder.close())
        for entry in holder.entries.values():
            self._forget(entry)
        for entry in holder.entries.values():
            self._place_again(entry.model, self._waiting.take(entry))

    async def close(self) -> None:
        """No more requests come: end what is under way. What still waits is told to go elsewhere."""
        self._timer.cancel()
        for holder in list(self._holders.values()):
            self.left(holder.target)
        await self._closing.wait()


def _is_unreachable(entry: Entry) -> bool:
    """Whether the instance did not answer when it was to load the model last."""
    return isinstance(entry.failure, ElsewhereError) and entry.failure.is_unreachable


def _wrong_name(model: str) -> str:
    """What is wrong with the path of a model, "" for nothing."""
    if len(model) > _LONGEST_NAME or not model.isprintable():
        return f"TargetModel has {len(model)} characters; it may have {_LONGEST_NAME}, all of them printable"
    parts = model.split("/")
    if any(part in ("..", ".") for part in parts) or not parts[-1]:
        return f"TargetModel '{model}' is no path of an archive below the endpoint's prefix, such as model.tar.gz"
    return ""
