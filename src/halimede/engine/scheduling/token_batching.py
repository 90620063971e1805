"""The dynamic batcher that closes batches by tokens, and prefers requests of similar length.

requests of 3, 40, 4 and 38 tokens wait, `max_tokens` is 80:

in order of arrival    [3, 40] is 2 x 40 tokens, of which 37 are padding; then [4, 38], of which 34 are
here                   [3, 4] is 2 x 4 tokens, of which 1 is padding; then [40, 38], of which 2 are

The request that is served next is in the next batch, always, so none starves. It chooses the others: those nearest to
its length first. Requests of lower priority join only if all of higher priority are in the batch.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from halimede.backends.batch import Batch, Closing
from halimede.config.model_config_pb2 import ModelDynamicBatching
from halimede.config.signature import Signature
from halimede.config.token_batching import TokenBatching
from halimede.core.clock import Clock
from halimede.core.requests import InferRequest
from halimede.engine.scheduling.batching import DynamicBatcher, Outcome

CANDIDATES: Final = 256
"""So many requests of one priority are considered for a batch, beyond `max_batch_size`; those that wait longest."""


class TokenBatcher(DynamicBatcher):
    """Requests run together, up to the largest number of tokens, padding included.

    A batch is sent when it cannot grow, or when its oldest request has waited for the queue delay.
    """

    def __init__(
        self,
        signature: Signature,
        tokens: TokenBatching,
        config: ModelDynamicBatching,
        clock: Clock,
        outcome: Outcome,
    ) -> None:
        super().__init__(signature, config, clock, outcome)
        self._tokens = tokens
        self._by_length = tokens.padded and not config.preserve_ordering

    def _full_batch_waits(self) -> bool:
        return self.queue.size > 0 and self._choose().closing in (Closing.FULL, Closing.MAX_TOKENS)

    def _take(self) -> list[InferRequest]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        choice = self._choose()
        self._closing = choice.closing
        if self._closing is None:
            send_at = min(request.queued_ns for request in choice.requests) + self._delay
            if send_at > self._clock.now():
                self._timer = self._clock.call_at(send_at, self._delay_over)
                return []
            self._closing = Closing.DELAY_OVER if self._delay else Closing.INSTANCE_FREE
        for request in choice.requests:
            self.queue.remove(request)
        return choice.requests

    def _choose(self) -> "_Choice":
        """The requests that would be the next batch now. At least one waits."""
        choice = _Choice(self._tokens, self._max_size)
        first = next(iter(self.queue))
        length = choice.length(first)
        like = None if self._likeness is None else self._likeness(first)
        for group in self.queue.groups():
            candidates = list(islice(group, CANDIDATES + self._max_size))
            order: Iterable[int] = range(len(candidates))
            if self._by_length:
                distances = [abs(choice.length(request) - length) for request in candidates]
                order = sorted(order, key=distances.__getitem__)  # stable: the oldest first among equals
                if candidates and candidates[0] is first:
                    order.remove(0)
                    order.insert(0, 0)
            taken = []
            for index in order:
                request = candidates[index]
                if self._likeness is not None and self._likeness(request) != like:
                    choice.closing = choice.closing or Closing.OTHER_SHAPES
                elif choice.add(request):
                    taken.append(index)
                    continue
                if not self._by_length or choice.rows >= self._max_size:
                    break
            choice.requests += [candidates[index] for index in sorted(taken)]
            if choice.closing is not None:
                break
        if choice.closing is None:
            choice.closing = choice.reached
        return choice

    def _started(self, batch: Batch) -> None:
        super()._started(batch)
        choice = _Choice(self._tokens, self._max_size)
        for request in batch.requests:
            choice.count(request)
        batch.tokens, batch.padding = choice.real, choice.padding


class _Choice:
    """Requests for a batch, and their tokens.

    Attributes:
        requests: in the order in which they wait.
        closing: why no more are among them; None if no more wait.
        rows: of all requests.
        real: tokens without padding.
        longest: tokens of the longest row.
    """

    __slots__ = ("_tokens", "closing", "longest", "max_rows", "real", "requests", "rows")

    def __init__(self, tokens: TokenBatching, max_rows: int) -> None:
        self._tokens = tokens
        self.max_rows = max_rows
        self.requests: list[InferRequest] = []
        self.closing: Closing | None = None
        self.rows = self.real = self.longest = 0

    def length(self, request: InferRequest) -> int:
        """Tokens of each row of the request."""
        tensor = request.inputs.get(self._tokens.source)
        return 0 if tensor is None else tensor.shape[1]

    @property
    def padding(self) -> int:
        """Tokens that the requests are filled up with."""
        return self.rows * self.longest - self.real if self._tokens.padded else 0

    @property
    def reached(self) -> Closing | None:
        """Which limit is reached; None if there is room for more."""
        if self.rows >= self.max_rows:
            return Closing.FULL
        return Closing.MAX_TOKENS if self.real + self.padding >= self._tokens.max_tokens else None

    def add(self, request: InferRequest) -> bool:
        """Count the request if the limits allow it; if not, `closing` says why. The first is always counted."""
        if not self.rows:
            self.count(request)
            return True
        before = self.rows, self.real, self.longest
        self.count(request)
        total, padding = self.real + self.padding, self.padding
        if self.rows > self.max_rows:
            refusal = Closing.FULL
        elif total > self._tokens.max_tokens:
            refusal = Closing.MAX_TOKENS
        elif padding > self._tokens.max_padding * total:
            refusal = Closing.OTHER_SHAPES
        else:
            return True
        self.rows, self.real, self.longest = before
        if self.closing is None or self.closing is Closing.OTHER_SHAPES:
            self.closing = refusal
        return False

    def count(self, request: InferRequest) -> None:
        """Count the request's rows and tokens."""
        rows, length = request.batch_size or 1, self.length(request)
        self.rows += rows
        self.real += rows * length
        self.longest = max(self.longest, length)
