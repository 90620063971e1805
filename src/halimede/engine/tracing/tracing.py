"""Tracing of requests: the settings that hold for each model, and the samplers that go by them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from halimede.core.errors import InvalidArgumentError
from halimede.core.traces import Trace
from halimede.engine.tracing.exporter import Exporter
from halimede.engine.tracing.sampler import Sampler
from halimede.engine.tracing.settings import TraceConfig, TraceMode, TraceSettings


class Tracing:
    """Traces some of the requests, as settings say that clients may change. Lives on the event loop.

    A setting of a model goes before that of all models. Models without settings of their own are sampled together.

    Attributes:
        config: how it was set at the start.
        active: requests may be traced: the one thing to look at before `begin`.
        on_change: called when that has changed.
        begin: ``begin(model_name, model_version, headers)`` is the trace of a client's request to this version of the
            model; None for one that is not traced. The headers are what came with it, HTTP headers or gRPC metadata;
            names are lower-case.
        options: further settings of the mode, name and value; names may repeat.
    """

    def __init__(self, config: TraceConfig, exporter: Exporter | None) -> None:
        """Trace as `config` says; without an exporter, whatever the settings are, nothing is traced."""
        self.config = config
        self.active = False
        self.on_change: list[Callable[[], None]] = []
        self.options = () if exporter is None else exporter.options
        self._exporter = exporter
        self._number = count(1).__next__
        self._changed: dict[str, Any] = {}  # for all models
        self._of_models: dict[str, dict[str, Any]] = {}
        self._samplers: dict[str, Sampler] = {}
        self._put("", config.settings)
        self._update_active()

    @property
    def dropped(self) -> int | None:
        """Traces that are lost, as they could not be handed on; None if none are made."""
        return None if self._exporter is None else self._exporter.dropped

    def _begin_by_model(
        self, model_name: str, model_version: int, headers: Mapping[str, object]
    ) -> Trace | None:
        samplers = self._samplers
        return (samplers.get(model_name) or samplers[""]).begin(model_name, model_version, headers)

    def settings(self, model_name: str = "") -> "CurrentSettings":
        """What holds for a model; "" for all that have no settings of their own."""
        sampler = self._samplers.get(model_name) or self._samplers[""]
        return CurrentSettings(sampler.settings, sampler.left)

    def change(self, changes: Mapping[str, Any], model_name: str = "") -> None:
        """Change settings.

        Args:
            changes: field of `TraceSettings` → value. None takes a setting of a model back, so that it is that of all
                models again; or, of all models, makes it what it was at the start.
            model_name: the model; "" for all models.

        Raises:
            InvalidArgumentError: requests were to be traced, but with these settings none would be; nothing is changed.
        """
        if not changes:
            return
        former = self._of_models.get(model_name, {}) if model_name else self._changed
        own = {name: value for name, value in {**former, **changes}.items() if value is not None}
        fallback = self._samplers[""].settings if model_name else self.config.settings
        settings = replace(fallback, **own)
        self._check(settings)
        if model_name:
            self._of_models[model_name] = own
            self._apply_to_model(model_name)
        else:
            self._changed = own
            self._put("", settings)
            for name in list(self._of_models):
                self._apply_to_model(name)
        self._update_active()

    def _check(self, settings: TraceSettings) -> None:
        if not settings.levels:
            return
        if self._exporter is None:
            raise _invalid("trace file name is not given")
        if not settings.rate and self.config.mode is TraceMode.TRITON:
            raise _invalid("sample rate must be non-zero")
        if not settings.count:
            raise _invalid("trace count must be non-zero")

    def _apply_to_model(self, name: str) -> None:
        own = self._of_models[name]
        if own:
            self._put(name, replace(self._samplers[""].settings, **own))
        else:
            del self._of_models[name]
            former = self._samplers.pop(name, None)
            if former is not None:
                former.close()

    def _put(self, name: str, settings: TraceSettings) -> None:
        former = self._samplers.get(name)
        if former is not None:
            former.close()
        self._samplers[name] = Sampler(settings, self._exporter, self._number, self._update_active)

    def _update_active(self) -> None:
        only = self._samplers[""]
        self.begin = only.begin if len(self._samplers) == 1 else self._begin_by_model
        active = any(sampler.active for sampler in self._samplers.values())
        if active is not self.active:
            self.active = active
            for callback in self.on_change:
                callback()

    def close(self, timeout_s: float) -> None:
        """Trace nothing more, and pass on what was traced, if that takes no longer than `timeout_s`. Blocks."""
        for sampler in self._samplers.values():
            sampler.close()
        self._update_active()
        if self._exporter is not None:
            self._exporter.close(timeout_s)


def _invalid(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"Attempting to set invalid trace setting :{why}")


@dataclass(frozen=True, slots=True)
class CurrentSettings:
    """Settings that hold now.

    Attributes:
        settings: as they were set.
        left: requests that are yet to be traced; -1 for any number.
    """

    settings: TraceSettings
    left: int
