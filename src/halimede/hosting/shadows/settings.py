"""Limits of copies."""

from dataclasses import dataclass

from halimede.hosting.routing.settings import InvocationSettings


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far two numbers may be apart that count as equal: |a - b| ≤ absolute + relative · max(|a|, |b|)."""

    absolute: float = 1e-5
    relative: float = 1e-3


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """Limits of copies. Sizes are in bytes, times in seconds.

    Attributes:
        copy_bytes: the body of a request that is copied.
        answer_bytes: an answer that is compared.
        held_bytes: what all copies of a process may hold together, from the request's first byte until they are done.
        concurrency: copies that one instance is asked at a time by one process.
        in_flight: copies for one instance that have been handed over to be sent, by all processes together.
        waiting: copies of one variant that wait for that.
        timeout_s: how long a copy may wait, and how long its answer may take.
        stream_timeout_s: how long the answer to a copy may take that clients asked to stream.
        restart_s: between two starts of the process that sends copies.
        tolerance: how far equal numbers may be apart.
    """

    copy_bytes: int = 25 << 20
    answer_bytes: int = 8 << 20
    held_bytes: int = 256 << 20
    concurrency: int = 64
    in_flight: int = 256
    waiting: int = 1024
    timeout_s: float = 60.0
    stream_timeout_s: float = 480.0
    restart_s: float = 5.0
    tolerance: Tolerance = Tolerance()

    @classmethod
    def of(cls, invocations: InvocationSettings) -> "ShadowSettings":
        """The limits of copies of invocations that have those."""
        return cls(
            copy_bytes=invocations.payload_bytes,
            timeout_s=invocations.timeout_s,
            stream_timeout_s=invocations.stream_timeout_s,
        )
