"""The states of a model's versions, the legal moves between them, and what is kept of each model.

    UNKNOWN ──► LOADING ──► READY ──► UNLOADING ──► UNAVAILABLE
                 ▲  │                  │              ▲   │
                 │  └──────────────────┼──────────────┘   │
                 └─────────────────────┴──────────────────┘

A version that serves while its successor loads, or after that has failed, stays READY.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from halimede.config.model_config_pb2 import ModelConfig
from halimede.engine.lifecycle.agents import AgentChain
from halimede.engine.memory.ledger import Holding
from halimede.engine.served_model import ServedModel
from halimede.repository.basis import Basis
from halimede.repository.snapshots import Snapshot

UNLOADED = "unloaded"
"""The reason of a version that was unloaded on purpose."""


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


@dataclass(slots=True, eq=False)
class Serving:
    """A loaded version and what it stands on.

    Attributes:
        model: takes the requests.
        basis: what it was loaded from, None if that can not be compared.
        files: the temporary directory that it was loaded from, None for one in a repository.
        uses: the versions that an ensemble sends its requests to; they serve until it has finished.
        holding: what it takes of the memory; None for an ensemble, which takes next to nothing.
        agents: the repository agents that loaded its files, None for none.
    """

    model: ServedModel
    basis: Basis | None
    files: OverrideFiles | None = None
    uses: "tuple[Serving, ...]" = ()
    holding: Holding | None = None
    agents: AgentChain | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Blueprint:
    """What the versions of an ensemble are made from, whenever the models that it needs allow it.

    Attributes:
        directory: the ensemble's directory.
        config: its configuration, in normal form and valid as far as it can be told by itself.
        labels: output → class labels.
        bases: what each of the selected versions stands on, as `Serving.basis`.
        needs: the models of its steps, each once.
    """

    directory: Path
    config: ModelConfig
    labels: Mapping[str, list[str]]
    bases: Mapping[int, Basis | None]
    needs: tuple[str, ...]


@dataclass(slots=True)
class Version:
    """One version of a model.

    Attributes:
        number: the version.
        state: what it is doing.
        reason: why it is UNAVAILABLE, or why a READY one's instances could not be changed; else "".
        withdrawn: nobody wants it to serve now, or it is an ensemble that wants a model that it needs; it is not so
            because something is wrong with it, and readiness does not wait for it.
        serving: what answers its requests, if anything does: in state READY, and only then.
        draining: what finishes its last requests, in state UNLOADING.
    """

    number: int
    state: VersionState = VersionState.UNKNOWN
    reason: str = ""
    withdrawn: bool = False
    serving: Serving | None = None
    draining: Serving | None = None

    def move(self, state: VersionState, reason: str = "", withdrawn: bool = False) -> None:
        """Enter another state.

        Raises:
            RuntimeError: there is no such move; the server is at fault.
        """
        if state not in LEGAL_MOVES[self.state]:
            raise RuntimeError(f"version {self.number} cannot go from {self.state.name} to {state.name}")
        self.state = state
        self.reason = reason
        self.withdrawn = withdrawn


@dataclass(slots=True)
class ModelRecord:
    """What is kept of one model that was to be loaded at some time.

    Attributes:
        name: the model's name.
        versions: by number; all that were ever to be loaded.
        reason: why the last attempt ended before there were versions to load, else "".
        refused: it ended so because there is no one configuration that can be used.
        selects_none: the last attempt that read its configuration found no version that the version policy selects.
        lacks_versions: so did the last attempt, and the model was not unloaded since.
        snapshot: what the last attempt saw on disk; None if it was overridden.
        overridden: what it saw on disk if a client brought another configuration that lasts; else None.
        intact: the last attempt succeeded, and nothing was unloaded since.
        loading: versions are being loaded now.
        turn: held by the operation under way; others queue for it in order of arrival.
        operations: how many operations hold it or wait for it.
        published: the versions that requests are sent to.
        explicit: a client or the command line asked for it, rather than an ensemble that needs it.
        blueprint: what to make its versions from, if it is an ensemble that serves or is to serve as soon as the
            models that it needs do; else None.
        pending: the models that the ensemble needs that is being loaded now.
        waits: the models whose load or unload it waits for while it is being loaded itself, and how often.
        agents: the repository agents of the last load that succeeded, None for none.
    """

    name: str
    versions: dict[int, Version] = field(default_factory=dict)
    reason: str = ""
    refused: bool = False
    selects_none: bool = False
    lacks_versions: bool = False
    snapshot: Snapshot | None = None
    overridden: Snapshot | None = None
    intact: bool = False
    loading: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    operations: int = 0
    published: set[int] = field(default_factory=set)
    explicit: bool = False
    blueprint: Blueprint | None = None
    pending: tuple[str, ...] = ()
    waits: Counter[str] = field(default_factory=Counter)
    agents: AgentChain | None = None

    @property
    def ready(self) -> bool:
        """Whether the server can be ready, as far as this model is concerned.

        Versions that were withdrawn don't count, nor does a configuration that cannot be read.
        """
        if self.loading or (self.lacks_versions and not self.models):
            return False
        settled = (
            version.state is VersionState.READY or version.withdrawn for version in self.versions.values()
        )
        return all(settled) and all(model.healthy for model in self.models.values())

    def forget_failed(self, selected: Collection[int] = ()) -> None:
        """Drop the versions that failed to load, but for those that are selected now."""
        for version in list(self.versions.values()):
            failed = version.state is VersionState.UNAVAILABLE and version.reason != UNLOADED
            if failed and version.number not in selected:
                del self.versions[version.number]

    @property
    def known(self) -> bool:
        """Whether requests for it are told about its versions, rather than that there is no such model."""
        return bool(self.versions or self.selects_none)

    @property
    def unloaded(self) -> bool:
        """Whether nothing of it is there on purpose, rather than for want of a model that it needs."""
        withdrawn = all(version.withdrawn for version in self.versions.values())
        return (
            bool(self.versions)
            and withdrawn
            and not self.models
            and self.blueprint is None
            and not self.loading
        )

    @property
    def dormant(self) -> bool:
        """Whether it is an ensemble that waits for a model that it needs."""
        return self.blueprint is not None and not self.models

    @property
    def needs(self) -> tuple[str, ...]:
        """The models that it sends requests to, or will: none unless it is an ensemble."""
        return self.pending or (self.blueprint.needs if self.blueprint is not None else ())

    @property
    def ahead(self) -> tuple[str, ...]:
        """The models that must be there before it is: those that it needs, and those that its load waits for."""
        return (*self.needs, *(name for name, count in self.waits.items() if count))

    @property
    def models(self) -> dict[int, ServedModel]:
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
        namespace: the model's repository, "" where names need none.
    """

    name: str
    version: str | None = None
    state: str = ""
    reason: str = ""
    namespace: str = ""
