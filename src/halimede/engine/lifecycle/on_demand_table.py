"""The models of a server that loads them when they are asked for."""

from halimede.core.errors import HalimedeError, NotLoadedError
from halimede.engine.lifecycle.model_table import ModelTable
from halimede.engine.lifecycle.version_states import ModelRecord
from halimede.engine.memory.ledger import Ledger
from halimede.engine.served_model import ServedModel


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
        self._ledger.used(name)
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
