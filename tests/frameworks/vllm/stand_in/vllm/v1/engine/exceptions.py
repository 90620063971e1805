"""What may go wrong."""


class EngineGenerateError(Exception):
    """A request failed; the engine goes on."""


class EngineDeadError(Exception):
    """The engine is gone for good."""

    def __init__(self) -> None:
        super().__init__("EngineCore encountered an issue. See stack trace (above) for the root cause.")
