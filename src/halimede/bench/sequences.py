"""Which request of which sequence a connection sends next."""

import random
from collections.abc import Iterator

from halimede.bench.payloads import Payload, Step
from halimede.bench.plan import Plan, Sequences


class SequenceState:
    """One connection's sequence: it holds one after the other.

    Attributes:
        under_way: the sequence has begun, and its last request has not been sent.
    """

    def __init__(
        self, sequences: Sequences, ids: Iterator[int], streams: Iterator[tuple[Payload, ...]], seed: int
    ) -> None:
        self.under_way = False
        self._sequences = sequences
        self._ids = ids
        self._streams = streams
        self._random = random.Random(seed)  # noqa: S311
        self._stream: tuple[Payload, ...] = ()
        self._id = self._sent = self._length = 0

    def next(self) -> bytes:
        """The next request's bytes."""
        if not self.under_way:
            self._id, self._stream, self._sent = next(self._ids), next(self._streams), 0
            self._length = self._new_length()
        self._sent += 1
        step = Step(self._id, self._sent == 1, self._sent == self._length)
        self.under_way = not step.end
        return self._stream[(self._sent - 1) % len(self._stream)].message(step)

    def _new_length(self) -> int:
        length = self._sequences.length
        spread = length * self._sequences.variation / 100
        return max(1, round(self._random.uniform(length - spread, length + spread)))


def correlation_ids(plan: Plan, index: int) -> Iterator[int]:
    """Ids that no other process uses, without end."""
    sequences = plan.sequences
    assert sequences is not None
    number = index
    while True:
        yield sequences.first + number % sequences.ids
        number += plan.processes
