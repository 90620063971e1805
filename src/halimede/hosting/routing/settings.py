"""Limits of invocations."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class InvocationSettings:
    """Limits of invocations. Times are in seconds, sizes in bytes.

    Attributes:
        payload_bytes: the body of a request.
        timeout_s: how long an instance may take to answer (SageMaker: 60).
        stream_timeout_s: how long a response stream may take (SageMaker: eight minutes).
        model_wait_s: how long a request waits for its model to be loaded before it is answered 429 (SageMaker: 60).
        kept_bytes: a body up to this size is kept, and so can be sent once more to another place if an instance
            refuses it for want of memory (507).
        placements: how often such a request is placed at most.
        timeout_ns, stream_timeout_ns: those times, in nanoseconds.
    """

    payload_bytes: int = 25 << 20
    timeout_s: float = 60.0
    stream_timeout_s: float = 480.0
    model_wait_s: float = 60.0
    kept_bytes: int = 1 << 20
    placements: int = 4
    timeout_ns: int = field(init=False)
    stream_timeout_ns: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "timeout_ns", int(self.timeout_s * 1e9))
        object.__setattr__(self, "stream_timeout_ns", int(self.stream_timeout_s * 1e9))
