"""The states of a model's versions, the legal moves between them, and what is kept of each model.

    UNKNOWN ──► LOADING ──► READY ──► UNLOADING ──► UNAVAILABLE
                 ▲  │                  │              ▲   │
                 │  └──────────────────┼──────────────┘   │
                 └─────────────────────┴──────────────────┘

A version that serves while its successor loads, or after that has failed, stays READY.
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from halimede.engine.model import Model
from halimede.repository.sightings import Sighting

UNLOADED = "unloaded"
"""The reason of a version that was unloaded on purpose: readiness does not wait for it."""


class VersionState(Enum):
    """What a version is doing."""

    UNKNOWN = "UNKNOWN"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


LEGAL_MOVES: dict[VersionState, frozenset[VersionState]] = {
    VersionState.UNKNOWN: frozenset({VersionState.LOADING}),
    VersionState.LOADING: frozenset({VersionState.READY, VersionState.UNAVAILABLE}),
    VersionState.READY: frozenset({VersionState.UNLOADING}),
    VersionState.UNLOADING: frozenset({VersionState.UNAVAILABLE, VersionState.LOADING}),
    VersionState.UNAVAILABLE: frozenset({VersionState.LOADING}),
}


@dataclass(slots=True)
class OverrideFiles:
    """A temporary directory with files that came with a load request.

    Attributes:
        directory: the directory.
        users: how many versions loaded from it are not closed yet; the last one deletes it.
    """

    directory: Path
    users: int = 0


@dataclass(frozen=True, slots=True)
class Basis:
    """What a version was loaded from. Equal bases: loading again would give the same.

    Attributes:
        directory: the model's directory.
        files: digests of the version's files and of those that all versions share.
        config: the configuration without its version policy, serialised.
    """

    directory: Path
    files: tuple[bytes, bytes]
    config: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Serving:
    """A loaded version and what it stands on.

    Attributes:
        model: takes the requests.
        basis: what it was loaded from, None if that can not be compared.
        files: the temporary directory that it was loaded from, None for one in a repository.
    """

    model: Model
    basis: Basis | None
    files: OverrideFiles | None


@dataclass(slots=True)
class Version:
    """One version of a model.

    Attributes:
        number: the version.
        state: what it is doing.
        reason: why it is UNAVAILABLE or UNLOADING, else "".
        serving: what answers its requests, if anything does: in state READY, and only then.
        draining: what finishes its last requests, in state UNLOADING.
    """

    number: int
    state: VersionState = VersionState.UNKNOWN
    reason: str = ""
    serving: Serving | None = None
    draining: Serving | None = None

    def move(self, state: VersionState, reason: str = "") -> None:
        """Enter another state.

        Raises:
            RuntimeError: there is no such move; the server is at fault.
        """
        if state not in LEGAL_MOVES[self.state]:
            raise RuntimeError(f"version {self.number} cannot go from {self.state.name} to {state.name}")
        self.state = state
        self.reason = reason


@dataclass(slots=True)
class ModelRecord:
    """What is kept of one model that was to be loaded at some time.

    Attributes:
        name: the model's name.
        versions: by number; those that were selected by the last load, or are still on their way out.
        reason: why the last attempt ended before there were versions to load, else "".
        sighting: what the last attempt saw on disk; None if it was overridden.
        intact: the last attempt succeeded, and nothing was unloaded since.
        loading: versions are being loaded now.
        turn: held by the operation under way; others queue for it in order of arrival.
        operations: how many operations hold it or wait for it.
        published: the versions that requests are sent to.
    """

    name: str
    versions: dict[int, Version] = field(default_factory=dict)
    reason: str = ""
    sighting: Sighting | None = None
    intact: bool = False
    loading: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    operations: int = 0
    published: set[int] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether the server can be ready, as far as this model is concerned.

        Versions that are or will be unloaded on purpose don't count.
        """
        if self.loading or (self.reason and not self.versions):
            return False
        return all(
            version.state is VersionState.READY or version.reason == UNLOADED
            for version in self.versions.values()
        )

    @property
    def known(self) -> bool:
        """Whether requests for it are told about its versions, rather than that there is no such model."""
        return bool(self.versions or self.reason)

    @property
    def models(self) -> dict[int, Model]:
        """What answers requests, by version, ascending."""
        return {
            number: version.serving.model
            for number, version in sorted(self.versions.items())
            if version.serving is not None
        }


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One row of the repository index; a model that was never loaded has only a name.

    Attributes:
        name: the model.
        version: the version, None if the row is about the model as a whole.
        state: a `VersionState`'s value, "" if nothing was attempted.
        reason: why it is in that state, "" if there is nothing to say.
    """

    name: str
    version: str | None = None
    state: str = ""
    reason: str = ""
