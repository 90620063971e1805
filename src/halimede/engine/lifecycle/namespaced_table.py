"""The models of repositories that may hold models of equal names (`--model-namespacing`).

In the server, a model is called by its identifier: the repository, ``::``, and the name that clients know. That name
leads to the model as long as no other model has it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from halimede.core.errors import HalimedeError, InvalidArgumentError, NotFoundError
from halimede.engine.lifecycle.model_table import ModelTable
from halimede.engine.lifecycle.version_states import ModelRecord
from halimede.engine.served_model import ServedModel
from halimede.repository.layout import distinct, identifier


class NamespacedTable(ModelTable):
    """A table whose records are kept by identifier, and found by the names of clients too."""

    namespaced = True

    def __init__(self, repositories: Sequence[Path]) -> None:
        """An empty table, for the models of these repositories."""
        super().__init__()
        self._prefixes = [identifier(repository, "") for repository in distinct(repositories)]
        self._routed: dict[str, set[int]] = {}  # names of clients that lead to versions, and which

    def own_name(self, name: str) -> str:
        """What clients call the model of that name in the server."""
        prefix = self._prefix(name)
        return name.removeprefix(prefix)

    def namespace(self, name: str) -> str:
        """The repository of the model of that name in the server, "" for one that is in none."""
        return self._prefix(name).removesuffix("::")

    def _prefix(self, name: str) -> str:
        return next((prefix for prefix in self._prefixes if name.startswith(prefix)), "")

    def meant(self, name: str) -> list[str]:
        """The names in the server of the models that a client means, as far as the server has to do with them."""
        return [key for key in self.identifiers(name) if self._may_be_meant(key)]

    def names_to_load(self, name: str) -> list[str]:
        """The names in the server of the models that a client wants loaded, as the repositories were last seen."""
        keys = self.identifiers(name)
        return (
            [key for key in keys if key in self.catalog]
            or [key for key in keys if key in self.records]
            or [name]
        )

    def identifiers(self, name: str) -> list[str]:
        """The names that a model which clients call so may have in the server."""
        return [name, *(prefix + name for prefix in self._prefixes)]

    def _may_be_meant(self, key: str) -> bool:
        """Whether a client may mean a model: it is known, and was not unloaded, nor is gone from its repository."""
        record = self.records.get(key)
        if record is None:
            return False
        there = key in self.catalog or not self._prefix(key)
        return bool(record.models) or (record.known and there and not record.unloaded)

    def name_in_server(self, name: str, seen_from: str) -> str:
        """The name in the server of the model that another one means: one of its own repository comes first."""
        own = self._prefix(seen_from) + name
        return own if own in self.records else super().name_in_server(name, seen_from)

    def set_catalog(self, catalog: Mapping[str, bool]) -> None:
        """Note which models are on disk."""
        super().set_catalog(catalog)
        for name in {self.own_name(name) for name in self.records}:
            self._route(name)

    def publish(self, record: ModelRecord) -> None:
        """From now on, send requests to the versions that serve now."""
        super().publish(record)
        self._route(self.own_name(record.name))

    def hide(self, model: ServedModel) -> None:
        """From now on, send no requests to the version, which may still be used by ensembles."""
        super().hide(model)
        self._remove(model.name, model)

    def serving(self, name: str) -> dict[int, ServedModel]:
        """The READY versions of a model, ascending.

        Raises:
            NotFoundError: there is no such model.
            InvalidArgumentError: there are several.
            UnavailableError: the server could not start.
        """
        keys = self.meant(name)
        if len(keys) > 1:
            raise self.ambiguous(name, len(keys))
        return super().serving(keys[0] if keys else name)

    def _why_not_found(self, name: str, version: int) -> HalimedeError:
        keys = self.meant(name)
        if len(keys) > 1 and not (self.failed or self.stopping):
            return self.ambiguous(name, len(keys))
        return super()._why_not_found(keys[0] if keys else name, version)

    def _unknown(self, name: str) -> NotFoundError:
        records = [self.records[key] for key in self.identifiers(name) if key in self.records]
        if any(record.known for record in records):
            return NotFoundError(f"Identifier of model '{name}' is not found in global map. It is not loaded")
        return super()._unknown(records[0].name if len(records) == 1 else name)

    def _in_repository(self, name: str) -> bool:
        return any(key in self.catalog for key in self.identifiers(name))

    def _route(self, name: str) -> None:
        """Let the name that clients know lead to the model that has it, if there is exactly one."""
        keys = self.meant(name)
        for number in self._routed.pop(name, ()):
            self._exact.pop((name, number), None)
        if name not in self.records:
            self._latest.pop(name, None)
        if len(keys) == 1 and keys != [name] and keys[0] in self.records:
            models = self.records[keys[0]].models
            self._routed[name] = set(models)
            self._exact.update({(name, number): model for number, model in models.items()})
            if models:
                self._latest[name] = models[max(models)]

    @staticmethod
    def ambiguous(name: str, count: int) -> InvalidArgumentError:
        """The error of a request for a name that so many models have."""
        return InvalidArgumentError(
            f"There are {count} identifiers of model '{name}' in global map, model namespace must be provided to "
            "resolve ambiguity."
        )
