"""What is traced, and how often: for all models, and for single ones."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

TIMESTAMPS: Final = "TIMESTAMPS"
TENSORS: Final = "TENSORS"
TRACE_LEVELS: Final = (TIMESTAMPS, TENSORS)


def trace_levels(names: Iterable[str]) -> tuple[str, ...]:
    """The levels that are among these names, in the order in which they are shown."""
    given = set(names)
    return tuple(level for level in TRACE_LEVELS if level in given)


class TraceMode(Enum):
    """Where traces go: to a file in Triton's format, or to a collector of OpenTelemetry."""

    TRITON = "triton"
    OPENTELEMETRY = "opentelemetry"


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class TraceSettings:
    """Which requests are traced. Two of these are never equal: what is sampled by one is kept apart from others.

    Attributes:
        levels: what is recorded of a request: times (TIMESTAMPS), the contents of tensors (TENSORS), both or nothing.
        rate: one of so many requests is traced; 0 for none.
        count: how many requests to trace; -1 for any number.
        log_frequency: after so many traced requests a further file is begun; 0 for never.
    """

    levels: tuple[str, ...] = ()
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
