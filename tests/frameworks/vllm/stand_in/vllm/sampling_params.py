"""How tokens are chosen."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Optional


class RequestOutputKind(Enum):
    """What an output has."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass
class StructuredOutputsParams:
    """What a text has to follow."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def __post_init__(self) -> None:
        if self.json == "no schema":
            raise ValueError("Invalid JSON schema")


@dataclass
class SamplingParams:
    """As vLLM has them. A class made of it has its own fields, too."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: Optional[int] = None  # noqa: UP045 - readers look for this type
    stop: Any = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16  # noqa: UP045
    min_tokens: int = 0
    logprobs: Optional[int] = None  # noqa: UP045
    prompt_logprobs: Optional[int] = None  # noqa: UP045
    detokenize: bool = True
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = field(default=None)
    skip_special_tokens: bool = True
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None

    def __init_subclass__(cls) -> None:
        dataclass(cls)

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature must be non-negative, got {self.temperature}.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}.")
