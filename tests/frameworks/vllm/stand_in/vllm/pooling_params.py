"""How embeddings are made."""

from dataclasses import dataclass


@dataclass
class PoolingParams:
    """How."""

    dimensions: int | None = None
    task: str | None = None
