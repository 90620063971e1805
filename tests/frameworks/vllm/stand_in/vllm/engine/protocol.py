"""What engines have in common."""


class EngineClient:
    """An engine."""
