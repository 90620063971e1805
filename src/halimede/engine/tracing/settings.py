"""What is traced, and how often: for all models, and for single ones."""

from dataclasses import dataclass, field
from enum import Enum


class TraceMode(Enum):
    """Where traces go: to a file in Triton's format, or to a collector of OpenTelemetry."""

    TRITON = "triton"
    OPENTELEMETRY = "opentelemetry"


@dataclass(frozen=True, slots=True, eq=False)
class TraceSettings:
    """Which requests are traced. Two of these are never equal: what is sampled by one is kept apart from others.

    Attributes:
        timestamps: whether times are recorded (level TIMESTAMPS).
        tensors: whether the contents of tensors are (level TENSORS).
        rate: one of so many requests is traced; 0 for none.
        count: how many requests to trace; -1 for any number.
        log_frequency: after so many traced requests a further file is begun; 0 for never.
    """

    timestamps: bool = False
    tensors: bool = False
    rate: int = 1000
    count: int = -1
    log_frequency: int = 0


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """How tracing is set when the server starts (`--trace-config`).

    Attributes:
        mode: where traces go.
        settings: which requests are traced.
        file: of the mode triton; "" for none.
        options: further ones of the mode, by name, with the values that it was given, in order: `url`, `resource` ….
    """

    mode: TraceMode = TraceMode.TRITON
    settings: TraceSettings = field(default_factory=TraceSettings)
    file: str = ""
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
