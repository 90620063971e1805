"""The engine: what every front end calls."""

from halimede.core.clock import Clock
from halimede.engine.inflight import InflightLimit
from halimede.engine.lifecycle.hosted_models import HostedModels
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.served_model import ServedModel
from halimede.engine.settings import EngineSettings
from halimede.engine.tracing.exporters import open_exporter
from halimede.engine.tracing.tracing import Tracing


class Engine:
    """What front ends need: the models, the time, and how the server was started. Lives on the event loop.

    Attributes:
        settings: how it was started.
        clock: the time its schedulers go by.
        lifecycle: which models there are, and their coming and going.
        hosted: the models that a platform brings.
        custom_metrics: the metrics that models make themselves.
        tracing: which requests are traced.
        inflight: counts the requests of clients; None if there may be any number.
    """

    def __init__(self, settings: EngineSettings, clock: Clock, lifecycle: Lifecycle) -> None:
        self.settings = settings
        self.clock = clock
        self.lifecycle = lifecycle
        self.hosted = HostedModels(lifecycle, settings.hosted_root)
        self.custom_metrics = lifecycle.custom_metrics
        self.tracing = Tracing(settings.tracing, open_exporter(settings.tracing, clock))
        most = settings.max_inflight_requests
        self.inflight = InflightLimit(most) if most else None

    def find(self, name: str, version: int = -1) -> ServedModel:
        """The loaded model of that name; the highest ready version for -1.

        Raises:
            NotLoadedError: the model is not loaded; `demand` has it loaded. In control mode ondemand only.
            NotFoundError: no such model or version, or none of its versions is ready.
            UnavailableError: that version is not ready.
        """
        return self.lifecycle.find(name, version)

    async def demand(self, name: str, version: int = -1, timeout_s: float | None = None) -> ServedModel:
        """Have a model loaded that `find` said is not loaded, and find it: see `Lifecycle.demand`."""
        return await self.lifecycle.demand(name, version, timeout_s)
