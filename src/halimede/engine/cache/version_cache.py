"""The response cache as one version of a model has it: in front of its scheduler.

A request is looked up when it has been validated. If its response is there, it is answered at once. Otherwise it is
computed, and requests that are equal to it and arrive meanwhile wait for its response instead of being computed too.
If it fails or is cancelled, the next of them is computed in its place.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from halimede.core.clock import Clock
from halimede.core.errors import CancelledError, HalimedeError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse, Respond
from halimede.engine.cache.entries import Entry
from halimede.engine.cache.keys import Keys
from halimede.engine.cache.store import Cache
from halimede.engine.statistics import FailureReason, ModelStatistics
from halimede.engine.tracing.recording import record_cached

logger = logging.getLogger("halimede")

Schedule = Callable[[InferRequest], None]
"""Has a request computed; raises UnavailableError if it cannot be."""


class Outcome(Protocol):
    """Who is told what became of requests: the model."""

    def answered_by_cache(self) -> None:
        """A request has its response, and did not run."""

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        """The request will not run: its client is to be told."""


class VersionCache:
    """Looks requests to a version up, and keeps the responses. Lives on the event loop."""

    def __init__(
        self,
        cache: Cache,
        identity: bytes,
        statistics: ModelStatistics,
        clock: Clock,
        schedule: Schedule,
        outcome: Outcome,
    ) -> None:
        """A cache that is empty for this version, unless others have used it under the same identity.

        Args:
            cache: where responses are kept.
            identity: tells the version from all others; 32 bytes.
            statistics: where hits and misses are counted.
            clock: the time.
            schedule: has requests computed.
            outcome: who is told of those that are not.
        """
        self._cache = cache
        self._counts = cache.counts
        self._get = cache.get
        self._largest = cache.largest
        self._key = Keys(identity).key
        self._statistics = statistics
        self._now = clock.now
        self._schedule = schedule
        self._outcome = outcome
        self._keys: set[bytes] = set()
        self._flights: dict[bytes, _Flight] = {}
        self._closed = False
        self._told_too_large = False

    def enqueue(self, request: InferRequest) -> None:
        """Answer the request from the cache, or have it computed, or let it wait for one that is.

        Requests of a sequence are computed: they may change the state of a model that is a step of an ensemble.

        Raises:
            UnavailableError: a request of a sequence cannot be computed.
        """
        if request.sequence_id or request.sequence_start or request.sequence_end:
            self._schedule(request)
            return
        began = self._now()
        try:
            key = self._key(request)
        except HalimedeError as error:
            self._outcome.refused(request, error, FailureReason.OTHER)
            return
        entry = self._get(key)
        lookup_ns = self._now() - began
        if entry is not None:
            self._counts.lookup_ns += lookup_ns
            self._answer(request, entry, lookup_ns)
            return
        flight = self._flights.get(key)
        if flight is not None:
            flight.waiting[request] = lookup_ns
            request.on_cancel = partial(self._cancelled, flight)
            return
        flight = self._flights[key] = _Flight(key, request, began)
        if self._cache.outlives:
            request.on_cancel = partial(self._cancelled, flight)
            self._cache.find(key, partial(self._found, flight))
        else:
            self._counts.lookup_ns += lookup_ns
            flight.lookup_ns = lookup_ns
            self._compute(flight, request)

    def _found(self, flight: "_Flight", entry: Entry | None) -> None:
        """A look-up elsewhere is over."""
        flight.lookup_ns = lookup_ns = self._now() - flight.began_ns
        self._counts.lookup_ns += lookup_ns
        request = flight.leader
        if entry is None:
            if request is not None:
                self._compute(flight, request)
            else:
                self._go_on(flight)
            return
        del self._flights[flight.key]
        if request is not None:
            self._answer(request, entry, lookup_ns)
        self._answer_waiting(flight, entry)

    def _answer_waiting(self, flight: "_Flight", entry: Entry) -> None:
        for request, lookup_ns in list(flight.waiting.items()):
            if request in flight.waiting:  # not cancelled since, by what the response to another led to
                self._answer(request, entry, lookup_ns)

    def _answer(self, request: InferRequest, entry: Entry, lookup_ns: int) -> None:
        """Send the client the response that is there."""
        request.on_cancel = None
        if request.trace is not None:
            record_cached(request, hit=True)
        request.respond(entry.response(), True)
        now = self._now()
        self._counts.hits += 1
        self._statistics.count_hit(request, lookup_ns, now)
        self._outcome.answered_by_cache()

    # Requests that are computed

    def _compute(self, flight: "_Flight", request: InferRequest) -> None:
        """Have a request computed, for all of the flight."""
        self._counts.misses += 1
        flight.leader = request
        request.on_cancel = None
        if request.trace is not None:
            record_cached(request, hit=False)
        respond = request.respond
        request.respond = partial(self._computed, flight, respond)
        try:
            self._schedule(request)
        except UnavailableError as error:
            self._outcome.refused(request, error, FailureReason.REJECTED)

    def _go_on(self, flight: "_Flight") -> None:
        """Have the next request of a flight computed, and if it fails at once, the one after it."""
        if flight.going_on:
            return
        flight.going_on = True
        while flight.leader is None and flight.waiting:
            request = next(iter(flight.waiting))
            flight.lookup_ns = flight.waiting.pop(request)
            self._compute(flight, request)
        flight.going_on = False
        if flight.leader is None and self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def _computed(
        self, flight: "_Flight", respond: Respond, response: InferResponse | None, final: bool
    ) -> None:
        """The model has answered the request that a flight waits for."""
        request, flight.leader = flight.leader, None
        assert request is not None, "it has one response"
        request.respond = respond
        if response is None or response.error is not None:
            respond(response, final)
            self._go_on(flight)
            return
        began = self._now()
        try:
            # now, as the client may write to the tensors when it has them
            entry = Entry.of(response, self._keys, self._largest)
        except Exception:  # of outputs that are not what they should be; the client will see
            logger.exception("a response cannot be kept")
            respond(response, final)
            self._go_on(flight)
            return
        del self._flights[flight.key]
        if entry.size > self._largest:
            self._tell_too_large(flight.key, entry)
            if flight.waiting:
                for _, tensor in response.tensors():
                    tensor.shared = True
        elif not self._closed:
            self._cache.insert(flight.key, entry)
        insertion_ns = self._now() - began
        respond(response, final)
        self._counts.insertion_ns += insertion_ns
        self._statistics.count_miss(flight.lookup_ns + insertion_ns)
        if flight.waiting:
            self._answer_waiting(flight, entry)

    def _tell_too_large(self, key: bytes, entry: Entry) -> None:
        if not self._told_too_large:
            self._told_too_large = True
            logger.error(
                "Failed to insert key [%s] into response cache: Requested byte_size: %d is greater than total cache "
                "size: %d; further responses that are too large are not logged",
                key.hex(), entry.size, self._largest,
            )  # fmt: skip

    def _cancelled(self, flight: "_Flight", request: InferRequest) -> None:
        """A client gave up on a request that is not computed: the others of the flight go on."""
        request.on_cancel = None
        if flight.leader is request:
            flight.leader = None
            if flight.waiting:
                flight.leader = next(iter(flight.waiting))
                del flight.waiting[flight.leader]
        else:
            del flight.waiting[request]
        error = CancelledError(request.prefix + "the request was cancelled while it was queued")
        self._outcome.refused(request, error, FailureReason.CANCELED)

    def close(self) -> None:
        """Keep no more responses, and give those back that are there. What is under way goes on."""
        self._closed = True
        self._cache.forget(self._keys)


class _Flight:
    """Equal requests, of which one is looked up or computed.

    Attributes:
        key: their key.
        leader: the one that is looked up or computed; None if it was cancelled or failed.
        waiting: the others → how long they took to find that out, in nanoseconds.
        began_ns: when the look-up began.
        lookup_ns: how long it took.
        going_on: the next one is about to be computed.
    """

    __slots__ = ("began_ns", "going_on", "key", "leader", "lookup_ns", "waiting")

    def __init__(self, key: bytes, leader: InferRequest, began_ns: int) -> None:
        self.key = key
        self.leader: InferRequest | None = leader
        self.waiting: dict[InferRequest, int] = {}
        self.began_ns = began_ns
        self.lookup_ns = 0
        self.going_on = False
