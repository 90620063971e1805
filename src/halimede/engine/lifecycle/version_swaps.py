"""Which versions of a model serve: swapping in new ones, and withdrawing them.

Whoever depends on a model is told between the two halves of a change: its new versions serve already, and the old
ones still take what ensembles that have just turned away from them have in flight.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from halimede.config.model_config_pb2 import ModelConfig
from halimede.engine.lifecycle.live_versions import LiveVersions
from halimede.engine.lifecycle.model_table import ModelTable
from halimede.engine.lifecycle.version_states import UNLOADED, ModelRecord, Serving, Version, VersionState


class VersionSwaps:
    """Changes what serves, each change at one stroke. Lives on the event loop.

    Attributes:
        on_change: called with a model's name when other versions of it serve than before.
    """

    def __init__(self, table: ModelTable, live: LiveVersions) -> None:
        self.on_change: list[Callable[[str], None]] = []
        self._table = table
        self._live = live

    def swap(
        self,
        record: ModelRecord,
        config: ModelConfig,
        selected: Collection[int],
        loaded: Mapping[int, Serving],
    ) -> None:
        """Let versions serve, and retire what they replace and what is no longer selected.

        Args:
            record: the model.
            config: its configuration, whose version policy the versions that stay take over.
            selected: its versions from now on.
            loaded: those of them that are new.
        """
        replaced = []
        for number, serving in loaded.items():
            self._live.add(serving)
            version = record.versions.setdefault(number, Version(number))
            if version.serving is not None:
                replaced.append(version.serving)
                serving.model.succeed(version.serving.model)
            version.serving = serving
        self._table.publish(record)
        for number in loaded:
            version = record.versions[number]
            if version.state is VersionState.READY:
                self._table.tell(record.name, number, VersionState.READY, "")
                continue
            if version.state is not VersionState.LOADING:
                self._table.move(record, version, VersionState.LOADING)
            self._table.move(record, version, VersionState.READY)
        dropped = []
        for number, version in list(record.versions.items()):
            if number in selected:
                if version.serving is not None:
                    version.serving.model.config.version_policy.CopyFrom(config.version_policy)
            elif version.state is VersionState.READY:
                dropped.append(version)
        successor = loaded[max(loaded)] if loaded else None
        for version in dropped:
            if successor is not None and version.serving is not None:
                successor.model.succeed(version.serving.model)
        self._detach(record, dropped)
        self._changed(record)
        for serving in replaced:
            self._live.retire(serving, succeeded=True)
        self._retire(record, dropped, succeeded=successor is not None)

    def withdraw(self, record: ModelRecord) -> None:
        """Let no new request reach the model; it is gone once those in flight are answered.

        Versions that failed to load keep the reason for that, but readiness waits for them no more.
        """
        for version in record.versions.values():
            version.withdrawn |= version.state is VersionState.UNAVAILABLE
        serving = [version for version in record.versions.values() if version.state is VersionState.READY]
        if serving:
            self._detach(record, serving)
            self._changed(record)
            self._retire(record, serving)
        self._table.tell_readiness()

    def _changed(self, record: ModelRecord) -> None:
        for callback in self.on_change:
            callback(record.name)

    def _detach(self, record: ModelRecord, versions: Collection[Version]) -> None:
        """Send no more requests to these versions."""
        for version in versions:
            version.draining, version.serving = version.serving, None
        self._table.publish(record)
        for version in versions:
            self._table.move(record, version, VersionState.UNLOADING, withdrawn=True)

    def _retire(self, record: ModelRecord, versions: Collection[Version], *, succeeded: bool = False) -> None:
        for version in versions:
            draining = version.draining
            if draining is not None:
                gone = partial(self._gone, record, version, draining)
                self._live.retire(draining, gone, succeeded=succeeded)

    def _gone(self, record: ModelRecord, version: Version, draining: Serving) -> None:
        # It may have been loaded again since, and be at anything.
        if version.draining is draining:
            version.draining = None
            if version.state is VersionState.UNLOADING:
                self._table.move(record, version, VersionState.UNAVAILABLE, UNLOADED, version.withdrawn)
