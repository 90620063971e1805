"""One model of one instance: where it has got to, and who waits for it."""

import hashlib
from dataclasses import dataclass
from enum import Enum

from halimede.hosting.errors import ApiError
from halimede.hosting.routing.table import OnPlaced, Target


class State(Enum):
    """What an instance has of a model."""

    ABSENT = "nothing"
    DOWNLOADING = "its archive is being fetched"
    ON_DISK = "its files"
    LOADING = "its files; it is being loaded"
    LOADED = "the model, ready to run"
    UNLOADING = "the model; it is being unloaded"
    REMOVING = "its files; they are being removed"


IN_MEMORY = frozenset((State.LOADING, State.LOADED, State.UNLOADING))
"""States in which a model takes memory."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits for the model.

    Attributes:
        on_placed: told when it is there, or will not be in time.
        deadline_ns: until when it may wait.
        entry: the model.
    """

    on_placed: OnPlaced
    deadline_ns: int
    entry: "Entry"


@dataclass(slots=True, eq=False)
class Entry:
    """One model of one instance. There may be hundreds of thousands, so that each is one small object.

    Attributes:
        target: the instance.
        model: its path below the variant's prefix.
        hash: what the instance calls it.
        has_files: there is something of its files.
        state: where it has got to; its holder changes it.
        etag: of the archive that the files are from.
        disk_bytes: what its files take; its holder changes it.
        memory_bytes: what it takes when it is loaded, as far as that is known or expected; its holder changes it.
        is_measured: `memory_bytes` was measured.
        load_pending: it is being fetched or loaded, or is about to be.
        freeing_memory: others make room, since it had not the memory to run; requests wait for that.
        freeing_bytes: how much room is made next, twice as much each time; 0 since it has run.
        pins: requests that are in flight.
        used_ns: when it was last asked for.
        popularity: how often it was asked for, lately above all; see `popularity.Popularity`.
        is_new: it has not been asked for again since it was to be loaded.
        busy_since_ns: since when it has had more requests in flight than an instance should; 0 if it has not.
        waiting: how many requests wait for it.
        failure: why it could not be loaded, when it was last tried.
        failed_ns: when that was.
    """

    target: Target
    model: str
    hash: str
    has_files: bool = False
    state: State = State.ABSENT
    etag: str = ""
    disk_bytes: int = 0
    memory_bytes: int = 0
    is_measured: bool = False
    load_pending: bool = False
    freeing_memory: bool = False
    freeing_bytes: int = 0
    pins: int = 0
    used_ns: int = 0
    popularity: float = float("-inf")
    is_new: bool = False
    busy_since_ns: int = 0
    waiting: int = 0
    failure: ApiError | None = None
    failed_ns: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent at once."""
        return self.state is State.LOADED and not self.freeing_memory

    def is_forgettable(self, before_ns: int) -> bool:
        """Whether nothing is known of it but a failure, and that from before then, if anything."""
        return (
            self.state is State.ABSENT
            and not (self.load_pending or self.pins or self.waiting)
            and self.failed_ns < before_ns
        )


def hash_of(model: str) -> str:
    """What an instance calls a model: 32 hexadecimal digits, as SageMaker does."""
    return hashlib.md5(model.encode(), usedforsecurity=False).hexdigest()
