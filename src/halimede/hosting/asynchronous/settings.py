"""Limits of asynchronous inference."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AsyncSettings:
    """Limits. Times are in seconds, sizes in bytes.

    Attributes:
        input_bytes: an input, and a result (SageMaker: 1 GB).
        memory_bytes: inputs and results up to this size are held in memory, larger ones in files.
        pauses_s: an object that cannot be read or written is tried again after each of these times.
        attempts: how often a request is sent to an instance that breaks off before it has answered.
        connect_s: how long an instance may take to accept a connection.
        refusal_s: so long an instance that accepts none gets no requests.
        refusals: so often a request meets such an instance before it fails.
        uploads: so many requests of an endpoint may be waiting for their results to be written.
    """

    input_bytes: int = 1 << 30
    memory_bytes: int = 1 << 20
    pauses_s: tuple[float, ...] = (0.25, 1.0, 4.0)
    attempts: int = 3
    connect_s: float = 5.0
    refusal_s: float = 1.0
    refusals: int = 30
    uploads: int = 256
