"""The engine: what every front end calls."""

from halimede.core.clock import Clock
from halimede.engine.ensembles.served import ServedModel
from halimede.engine.lifecycle import Lifecycle
from halimede.engine.settings import EngineSettings


class Engine:
    """What front ends need: the models, the time, and how the server was started. Lives on the event loop.

    Attributes:
        settings: how it was started.
        clock: the time its schedulers go by.
        lifecycle: which models there are, and their coming and going.
        custom_metrics: the metrics that models make themselves.
    """

    def __init__(self, settings: EngineSettings, clock: Clock, lifecycle: Lifecycle) -> None:
        self.settings = settings
        self.clock = clock
        self.lifecycle = lifecycle
        self.custom_metrics = lifecycle.custom_metrics

    def find(self, name: str, version: int = -1) -> ServedModel:
        """The loaded model of that name; the highest ready version for -1.

        Raises:
            NotFoundError: no such model or version, or none of its versions is ready.
            UnavailableError: that version is not ready.
        """
        return self.lifecycle.find(name, version)
