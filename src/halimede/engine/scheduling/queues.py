"""Where requests wait: first in, first out within each priority, with limits and timeouts by priority.

A level holds its requests in two lists. Those whose timeout passed under the action DELAY move to the second,
which is served only when nothing unexpired of the same or a higher priority waits.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from halimede.config.model_config_pb2 import ModelDynamicBatching, ModelQueuePolicy
from halimede.core.clock import MICROSECOND, Clock, Timer
from halimede.core.errors import UnavailableError
from halimede.core.requests import InferRequest


class _Waiting:
    """A queue from whose middle requests can be taken: they stay as tombstones until they reach its head."""

    __slots__ = ("gone", "requests")

    def __init__(self) -> None:
        self.requests: deque[InferRequest] = deque()
        self.gone: set[InferRequest] = set()

    def __len__(self) -> int:
        return len(self.requests) - len(self.gone)

    def __iter__(self) -> Iterator[InferRequest]:
        if not self.gone:
            return iter(self.requests)
        return (request for request in self.requests if request not in self.gone)

    def pop(self) -> InferRequest:
        request = self.requests.popleft()
        while request in self.gone:
            self.gone.discard(request)
            request = self.requests.popleft()
        return request

    def remove(self, request: InferRequest) -> None:
        self.gone.add(request)
        while self.requests and self.requests[0] in self.gone:
            self.gone.discard(self.requests.popleft())


class _Level:
    """The requests of one priority, and the policy that they wait under."""

    __slots__ = ("delayed", "policy", "unexpired")

    def __init__(self, policy: ModelQueuePolicy) -> None:
        self.policy = policy
        self.unexpired = _Waiting()
        self.delayed = _Waiting()

    def __len__(self) -> int:
        return len(self.unexpired) + len(self.delayed)

    def timeout_us(self, request: InferRequest) -> int:
        """How long the request may wait, in microseconds; 0 for as long as it takes.

        A request's own timeout may only shorten the policy's default.
        """
        default: int = self.policy.default_timeout_microseconds
        if self.policy.allow_timeout_override and 0 < request.timeout_us < default:
            return request.timeout_us
        return default


class RequestQueue:
    """The queue of one model version, under the policies of its `dynamic_batching`.

    Attributes:
        size: the rows (batch sizes, each at least 1) of all requests that wait.
        expires: requests may time out.
    """

    def __init__(
        self,
        config: ModelDynamicBatching,
        clock: Clock,
        on_timeout: Callable[[InferRequest], None],
    ) -> None:
        """An empty queue; `on_timeout` gets each request that waited too long, already out of the queue."""
        self._clock = clock
        self._on_timeout = on_timeout
        self._policies = dict(config.priority_queue_policy)
        self._default_policy = config.default_queue_policy
        self._priorities = range(1, config.priority_levels + 1) if config.priority_levels else range(1)
        self._default_level = config.default_priority_level
        self._levels: dict[int, _Level] = {}  # those that were asked for, ascending
        self._first = self._level_of(self._default_level)
        self.expires = any(
            policy.default_timeout_microseconds for policy in (self._default_policy, *self._policies.values())
        )
        self._plain = config.priority_levels <= 1 and self._first.policy == ModelQueuePolicy()
        self._deadlines: list[tuple[int, int, InferRequest]] = []
        self._expiring: dict[InferRequest, _Level] = {}
        self._timer: Timer | None = None
        self._pushed = 0
        self.size = 0

    def __len__(self) -> int:
        if self._plain:
            return len(self._first.unexpired)
        return sum(len(level) for level in self._levels.values())

    def __iter__(self) -> Iterator[InferRequest]:
        """The requests in the order in which they are served."""
        if self._plain:
            return iter(self._first.unexpired)
        return chain.from_iterable(chain(level.unexpired, level.delayed) for level in self._levels.values())

    def push(self, request: InferRequest) -> None:
        """Let the request wait.

        Raises:
            UnavailableError: its level is full.
        """
        if self._plain:
            self._first.unexpired.requests.append(request)
        else:
            level = self._level(request)
            limit = level.policy.max_queue_size
            if limit and len(level) >= limit:
                raise UnavailableError(request.prefix + "Exceeds maximum queue size")
            level.unexpired.requests.append(request)
            timeout_us = level.timeout_us(request)
            if timeout_us:
                self._expire(request, level, self._clock.now() + timeout_us * MICROSECOND)
        self.size += request.batch_size or 1

    def restore(self, request: InferRequest) -> None:
        """Let a request that was taken be the next again; it has waited already, and may wait as long as it must."""
        level = self._first if self._plain else self._level(request)
        level.unexpired.requests.appendleft(request)
        self.size += request.batch_size or 1

    def pop(self) -> InferRequest:
        """Take the request that is served next."""
        if self._plain:
            request = self._first.unexpired.pop()
        else:
            level = next(level for level in self._levels.values() if len(level))
            request = (level.unexpired if len(level.unexpired) else level.delayed).pop()
            self._expiring.pop(request, None)
        self.size -= request.batch_size or 1
        return request

    def remove(self, request: InferRequest) -> None:
        """Take out a request that waits."""
        level = self._level(request)
        delayed = len(level.delayed) > 0 and request in level.delayed.requests
        (level.delayed if delayed else level.unexpired).remove(request)
        self._expiring.pop(request, None)
        self.size -= request.batch_size or 1

    def _level(self, request: InferRequest) -> _Level:
        return self._levels.get(request.priority) or self._level_of(request.priority)

    def _level_of(self, priority: int) -> _Level:
        """The level of a priority, that of the default for one that there is not; made when it is first asked for."""
        number = priority if priority in self._priorities else self._default_level
        level = self._levels.get(number)
        if level is None:
            level = self._levels[number] = _Level(self._policies.get(number, self._default_policy))
            self._levels = dict(sorted(self._levels.items()))
        return level

    def _expire(self, request: InferRequest, level: _Level, deadline: int) -> None:
        self._expiring[request] = level
        self._pushed += 1
        heapq.heappush(self._deadlines, (deadline, self._pushed, request))
        if self._timer is None or deadline < self._timer.when:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._deadlines and self._deadlines[0][2] not in self._expiring:
            heapq.heappop(self._deadlines)
        if self._deadlines:
            self._timer = self._clock.call_at(self._deadlines[0][0], self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.expire()
        self._arm()

    def expire(self) -> None:
        """Let the requests time out whose deadlines have passed, without waiting for the timer."""
        now = self._clock.now()
        while self._deadlines and self._deadlines[0][0] <= now:
            request = heapq.heappop(self._deadlines)[2]
            level = self._expiring.pop(request, None)
            if level is None:
                continue
            level.unexpired.remove(request)
            if level.policy.timeout_action == ModelQueuePolicy.DELAY:
                level.delayed.requests.append(request)
                continue
            self.size -= request.batch_size or 1
            self._on_timeout(request)
