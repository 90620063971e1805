"""What the engine gives out."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


@dataclass
class Logprob:
    """How probable a token was."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    """A text, or what is new of it."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class RequestOutput:
    """The texts of a request."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: Any
    outputs: list[CompletionOutput]
    finished: bool


@dataclass
class PoolingRequestOutput(Generic[Made]):
    """What pooling made of a request."""

    request_id: str
    outputs: Made
    prompt_token_ids: list[int]
    finished: bool


@dataclass
class PoolingOutput:
    """Numbers."""

    data: list[float]


@dataclass
class EmbeddingOutput:
    """An embedding."""

    embedding: list[float]


class EmbeddingRequestOutput(PoolingRequestOutput[EmbeddingOutput]):
    """The embedding of a request."""

    @staticmethod
    def from_base(base: PoolingRequestOutput[Any]) -> "EmbeddingRequestOutput":
        """Of what pooling made."""
        made = EmbeddingOutput(base.outputs.data)
        return EmbeddingRequestOutput(base.request_id, made, base.prompt_token_ids, base.finished)
