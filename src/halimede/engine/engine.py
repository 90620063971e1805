"""The engine: what every front end calls."""

from halimede.core.clock import Clock
from halimede.core.errors import HalimedeError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.lifecycle import Lifecycle
from halimede.engine.model import Model
from halimede.engine.settings import EngineSettings


class Engine:
    """Finds models and sends requests to them. Lives on the event loop.

    Attributes:
        settings: how it was started.
        clock: the time its schedulers go by.
        lifecycle: which models there are, and their coming and going.
    """

    def __init__(self, settings: EngineSettings, clock: Clock, lifecycle: Lifecycle) -> None:
        self.settings = settings
        self.clock = clock
        self.lifecycle = lifecycle

    def find(self, name: str, version: int = -1) -> Model:
        """The loaded model of that name; the highest ready version for -1.

        Raises:
            NotFoundError: no such model or version, or none of its versions is ready.
            UnavailableError: that version is not ready.
        """
        return self.lifecycle.find(name, version)

    def infer(self, request: InferRequest) -> None:
        """Answer the request through its `respond`: with responses, or with the error that stopped it."""
        try:
            model = self.lifecycle.find(request.model_name, request.model_version)
        except HalimedeError as error:
            request.respond(InferResponse(error=error), True)
            return
        model.infer(request)
