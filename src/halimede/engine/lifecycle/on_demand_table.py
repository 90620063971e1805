"""The models of a server that loads them when they are asked for."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from halimede.core.errors import HalimedeError, NotLoadedError
from halimede.engine.lifecycle.model_table import ModelTable
from halimede.engine.lifecycle.namespaced_table import NamespacedTable
from halimede.engine.lifecycle.version_states import ModelRecord
from halimede.engine.memory.ledger import Ledger
from halimede.engine.served_model import ServedModel
from halimede.engine.settings import ControlMode, EngineSettings
from halimede.repository.snapshots import Snapshot


class OnDemandTable(ModelTable):
    """A table in which a model that is not there may be had, and that keeps the order in which models were used."""

    def __init__(self, ledger: Ledger) -> None:
        """An empty table; `ledger` is told which model is used."""
        super().__init__()
        self._ledger = ledger

    def find(self, name: str, version: int = -1) -> ServedModel:
        """The loaded model of that name; the highest ready version for -1. It is used now.

        Raises:
            NotLoadedError: the model is not loaded, if it exists.
            NotFoundError: it is loaded, but has no such version.
            UnavailableError: that version is not ready, or the server is stopping.
        """
        model = super().find(name, version)
        self._ledger.used(model.identifier)
        return model

    def serving(self, name: str) -> dict[int, ServedModel]:
        """The READY versions of a model, ascending: none of one that lies on disk.

        Raises:
            NotFoundError: there is no such model.
        """
        record = self.records.get(name)
        if name in self.catalog and (record is None or not record.known):
            return {}
        return super().serving(name)

    def publish(self, record: ModelRecord) -> None:
        """From now on, send requests to the versions that serve now."""
        super().publish(record)
        if record.models:
            self._ledger.used(record.name)
        else:
            self._ledger.forget(record.name)

    def _why_not_found(self, name: str, version: int) -> HalimedeError:
        record = self.records.get(name)
        if self.stopping or (record is not None and record.models):
            return super()._why_not_found(name, version)
        return NotLoadedError(name, version)


class OnDemandNamespacedTable(OnDemandTable, NamespacedTable):
    """Such a table whose repositories may hold models of equal names; all that are on disk may be meant."""

    def __init__(self, ledger: Ledger, repositories: Sequence[Path]) -> None:
        """An empty table; `ledger` is told which model is used."""
        NamespacedTable.__init__(self, repositories)
        self._ledger = ledger

    async def identify(self, name: str, look: Callable[[str], Awaitable[Snapshot]]) -> str:
        """The name in the server of the only model that a client means; the name itself if there is none.

        Args:
            name: what the client calls it.
            look: what there is of a model on disk, by its name in the server.

        Raises:
            InvalidArgumentError: there are several.
            HalimedeError: it cannot be seen whether there is one.
        """
        names = [key for key in self.identifiers(name) if self._prefix(key)]
        if name in names or self.namespaces.find(name) is not None:
            return name
        looks = await asyncio.gather(*map(look, names), return_exceptions=True)
        seen = dict(zip(names, looks, strict=True))
        found = [each for each, there in seen.items() if isinstance(there, Snapshot) and there.directories]
        failures = [there for there in looks if isinstance(there, BaseException)]
        if failures and not found:
            raise failures[0]
        others = {each: several for each, several in self.catalog.items() if each not in names}
        self.set_catalog({**others, **dict.fromkeys(found, False)})
        if len(found) > 1:
            raise self.ambiguous(name, len(found))
        return found[0] if found else name

    def name_in_server(self, name: str, seen_from: str) -> str:
        """The name in the server of the model that another one means: one of its own repository comes first."""
        own = self._prefix(seen_from) + name
        return own if own in self.catalog else super().name_in_server(name, seen_from)

    def serving(self, name: str) -> dict[int, ServedModel]:
        """The READY versions of a model, ascending: none of one that lies on disk.

        Raises:
            NotFoundError: there is no such model.
            InvalidArgumentError: there are several.
        """
        keys = self.meant(name)
        if len(keys) > 1:
            raise self.ambiguous(name, len(keys))
        return super().serving(keys[0] if keys else name)

    def _may_be_meant(self, key: str) -> bool:
        return key in self.catalog or super()._may_be_meant(key)

    def _why_not_found(self, name: str, version: int) -> HalimedeError:
        keys = self.meant(name)
        if len(keys) > 1 and not self.stopping:
            return NotLoadedError(name, version)  # whether there still are several is seen on disk
        return super()._why_not_found(keys[0] if keys else name, version)


def table_for(settings: EngineSettings, ledger: Ledger) -> ModelTable:
    """The table that the settings ask for, with nothing in it; `ledger` is told which model is used on demand."""
    repositories = settings.model_repositories
    if settings.control_mode is ControlMode.ON_DEMAND:
        return (
            OnDemandNamespacedTable(ledger, repositories)
            if settings.model_namespacing
            else OnDemandTable(ledger)
        )
    return NamespacedTable(repositories) if settings.model_namespacing else ModelTable()
