"""Decides which requests are traced."""

from collections.abc import Callable, Mapping

from halimede.core.traces import Trace
from halimede.engine.tracing.exporter import Exporter
from halimede.engine.tracing.settings import TENSORS, TIMESTAMPS, TraceSettings


class Sampler:
    """Samples requests by settings that do not change, and hands on what was recorded of them.

    Args:
        settings: which requests are traced.
        exporter: where traces go; None for nowhere, so that there are none.
        number: gives each trace its number.
        exhausted: called when as many requests as wanted were traced.

    Attributes:
        settings: as above.
        active: requests may be traced.
        left: so many are yet to be traced; -1 for any number.
    """

    def __init__(
        self,
        settings: TraceSettings,
        exporter: Exporter | None,
        number: Callable[[], int],
        exhausted: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.left = settings.count
        self.active = exporter is not None and settings.levels != () and settings.count != 0
        self._exporter = exporter
        self._number = number
        self._exhausted = exhausted
        self._seen = 0

    def begin(self, model_name: str, model_version: int, headers: Mapping[str, object]) -> Trace | None:
        """As `Tracing.begin`."""
        if not self.active:
            return None
        exporter, settings = self._exporter, self.settings
        assert exporter is not None, "without one, it is not active"
        remote = exporter.remote(headers)
        if remote is None:
            self._seen += 1
            if not settings.rate or self._seen % settings.rate:
                return None
        elif not remote.sampled:
            return None
        if self.left > 0:
            self.left -= 1
            if not self.left:
                self.close()
                self._exhausted()
        return Trace(
            self,
            self._number(),
            model_name,
            model_version,
            timestamps=TIMESTAMPS in settings.levels,
            tensors=TENSORS in settings.levels,
            context=exporter.context(remote),
            remote=remote,
        )

    def child(self, parent: Trace, model_name: str, model_version: int) -> Trace:
        """A new trace of a request that `parent`'s request causes."""
        return Trace(
            self,
            self._number(),
            model_name,
            model_version,
            parent=parent,
            timestamps=parent.timestamps,
            tensors=parent.tensors,
            context=None if self._exporter is None else self._exporter.context(parent.context),
        )

    def ended(self, traces: list[Trace]) -> None:
        """A client's request has ended, and all that it has caused."""
        if self._exporter is not None:
            self._exporter.export(traces, self.settings)

    def close(self) -> None:
        """Trace no further requests."""
        self.active = False
        if self._exporter is not None:
            self._exporter.flush(self.settings)
