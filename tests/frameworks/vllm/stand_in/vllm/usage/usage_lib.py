"""Who uses the engine."""

from enum import StrEnum


class UsageContext(StrEnum):
    """Who."""

    ENGINE_CONTEXT = "ENGINE_CONTEXT"
    OPENAI_API_SERVER = "OPENAI_API_SERVER"
