"""The models that the server knows: what answers a request for one, and what the index says of it."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from halimede.core.errors import HalimedeError, NotFoundError, UnavailableError
from halimede.core.hints import names_hint
from halimede.engine.lifecycle.namespaces import Namespaces
from halimede.engine.lifecycle.version_states import IndexRow, ModelRecord, Version, VersionState
from halimede.engine.served_model import ServedModel

NOT_READY = "Server not ready"
_MOST_VERSIONS = 10
AMBIGUOUS = "model appears in two or more repositories"

Progress = Callable[[str, int | None, str, str], None]
"""``(name, version, state, reason)``, called on the loop; version None is the model as a whole."""


class ModelTable:
    """The models that the server knows. Lives on the event loop.

    Attributes:
        records: what became of each model that was to be loaded.
        catalog: the models on disk when last looked; True for those in more than one repository.
        namespaces: the models outside the repositories.
        stopping: the server is shutting down.
        failed: the server could not start, and answers for no model.
        on_progress: called at each change of a version's state.
        on_readiness: called when the server may have become ready, or not ready; also at each such change.
        namespaced: names in the server are identifiers, and no directory's.
    """

    namespaced: ClassVar[bool] = False

    def __init__(self) -> None:
        self.records: dict[str, ModelRecord] = {}
        self.catalog: Mapping[str, bool] = {}
        self.namespaces = Namespaces()
        self.stopping = False
        self.failed = False
        self.on_progress: list[Progress] = []
        self.on_readiness: list[Callable[[], None]] = []
        self._latest: dict[str, ServedModel] = {}
        self._exact: dict[tuple[str, int], ServedModel] = {}

    def own_name(self, name: str) -> str:
        """What clients call the model of that name in the server."""
        return name

    def namespace(self, _name: str) -> str:
        """The repository of the model of that name in the server, "" where names need none."""
        return ""

    def meant(self, name: str) -> list[str]:
        """The names in the server of the models that a client means, as far as the server has to do with them."""
        return [name] if name in self.records else []

    def names_to_load(self, name: str) -> list[str]:
        """The names in the server of the models that a client wants loaded, as the repositories were last seen."""
        return [name]

    def name_in_server(self, name: str, seen_from: str) -> str:
        """The name in the server of the model that another one calls `name`."""
        return self.namespaces.resolve(name, seen_from)

    def set_catalog(self, catalog: Mapping[str, bool]) -> None:
        """Note which models are on disk, and which of them in more than one repository."""
        self.catalog = catalog

    def find(self, name: str, version: int = -1) -> ServedModel:
        """The loaded model of that name; the highest ready version for -1. Two look-ups at most.

        Raises:
            NotFoundError: no such model or version, or none of its versions is ready.
            UnavailableError: that version is not ready, or the server is stopping.
        """
        model = self._latest.get(name) if version == -1 else self._exact.get((name, version))
        if model is None:
            raise self._why_not_found(name, version)
        return model

    def _why_not_found(self, name: str, version: int) -> HalimedeError:
        if self.failed:
            return UnavailableError(NOT_READY)
        if self.stopping:
            return UnavailableError(f"Server is stopping, model '{name}' accepts no more requests")
        record = self.records.get(name)
        if record is None or not record.known:
            return self._unknown(name)
        if version == -1:
            return NotFoundError(f"Request for unknown model: '{name}' has no available versions")
        if version not in record.versions:
            versions = ", ".join(map(str, sorted(record.models)[:_MOST_VERSIONS]))
            hint = f". Its versions are: {versions}" if versions else ""
            return NotFoundError(f"Request for unknown model: '{name}' version {version} is not found{hint}")
        return UnavailableError(
            f"Request for unknown model: '{name}' version {version} is not at ready state"
        )

    def _unknown(self, name: str) -> NotFoundError:
        """The error for a model that is not there, with the nearest of the loaded models and which there are.

        Models of archives are left out: they are no business of other models' clients.
        """
        text = f"Request for unknown model: '{name}' is not found"
        if self._in_repository(name):
            return NotFoundError(f"{text}. It is in a repository, but not loaded")
        loaded = {self.own_name(each) for each, _ in self._exact if self.namespaces.find(each) is None}
        return NotFoundError(text + names_hint(name, loaded, "loaded models"))

    def _in_repository(self, name: str) -> bool:
        """Whether a model that clients call so is on disk."""
        return name in self.catalog

    def check(self) -> None:
        """Refuse to answer for models if the server could not start.

        Raises:
            UnavailableError: it could not.
        """
        if self.failed:
            raise UnavailableError(NOT_READY)

    def serving(self, name: str) -> dict[int, ServedModel]:
        """The READY versions of a model, ascending.

        Raises:
            NotFoundError: there is no such model.
            UnavailableError: the server could not start.
        """
        self.check()
        record = self.records.get(name)
        if record is None or not record.known:
            raise self._unknown(name)
        return record.models

    def loaded_models(self) -> list[ServedModel]:
        """Every READY version, by name and version."""
        return [model for _, record in sorted(self.records.items()) for model in record.models.values()]

    def index(self, ready_only: bool = False) -> list[IndexRow]:
        """The models on disk: one row a version that was ever loaded, or one for a model that never was.

        A model without a version to load has no row.

        Raises:
            UnavailableError: the server could not start.
        """
        self.check()
        rows = []
        hosted = {name for name in self.records if self.namespaces.find(name) is not None}
        for name in sorted(self.catalog.keys() | hosted):
            record = self.records.get(name) or ModelRecord(name)
            own_name, namespace = self.own_name(name), self.namespace(name)
            if self.catalog.get(name):
                rows.append(IndexRow(name, None, VersionState.UNAVAILABLE.value, AMBIGUOUS))
            elif record.versions:
                rows += [
                    IndexRow(own_name, str(number), version.state.value, version.reason, namespace)
                    for number, version in sorted(record.versions.items())
                ]
            elif name in self.catalog and not record.selects_none:
                rows.append(IndexRow(own_name, namespace=namespace))
        return [row for row in rows if row.state == VersionState.READY.value] if ready_only else rows

    def move(
        self,
        record: ModelRecord,
        version: Version,
        state: VersionState,
        reason: str = "",
        withdrawn: bool = False,
    ) -> None:
        """Change the state of a version, and tell who wants to know."""
        version.move(state, reason, withdrawn)
        self.tell(record.name, version.number, state, reason)

    def tell(self, name: str, version: int | None, state: VersionState, reason: str) -> None:
        """Tell who wants to know what a version does; None for the model as a whole."""
        for callback in self.on_progress:
            callback(name, version, state.value, reason)
        self.tell_readiness()

    def tell_readiness(self) -> None:
        """Tell who wants to know that the server may have become ready, or not ready."""
        for callback in self.on_readiness:
            callback()

    def publish(self, record: ModelRecord) -> None:
        """From now on, send requests to the versions that serve now."""
        name = record.name
        models = record.models
        for number in record.published - models.keys():
            self._exact.pop((name, number), None)  # it may be hidden
        for number, model in models.items():
            self._exact[name, number] = model
        record.published = set(models)
        if models:
            self._latest[name] = models[max(models)]
        else:
            self._latest.pop(name, None)

    def hide(self, model: ServedModel) -> None:
        """From now on, send no requests to the version, which may still be used by ensembles."""
        self._remove(model.identifier, model)

    def _remove(self, name: str, model: ServedModel) -> None:
        """Let the name no longer lead to the version."""
        if self._exact.get((name, model.version)) is model:
            del self._exact[name, model.version]
        if self._latest.get(name) is model:
            del self._latest[name]
