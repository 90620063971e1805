"""Where requests wait: first in, first out within each priority, with limits and timeouts by priority.

A level holds its requests in two lists. Those whose timeout passed under the action DELAY move to the second,
which is served only when nothing unexpired of the same or a higher priority waits.

A request that has a timeout is refused at once if it would wait for longer, by what executions take. Once requests
have been refused, and until one comes that need not wait, an execution has to fit into the timeout as well. Requests
that can no longer be answered in time do not run while others wait that can, so that an overloaded model does not
spend its time on late answers.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from halimede.config.model_config_pb2 import ModelDynamicBatching, ModelQueuePolicy
from halimede.core.clock import MICROSECOND, MILLISECOND, Clock
from halimede.core.errors import UnavailableError
from halimede.core.requests import InferRequest
from halimede.engine.scheduling.deadlines import Deadlines
from halimede.engine.scheduling.pace import Pace, seconds_to_wait

_FEW = 32
"""So many requests that were taken out of the middle are left where they are."""


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

    def restore(self, request: InferRequest) -> None:
        if request in self.gone:  # it was taken out of the middle
            self._forget_gone()
        self.requests.appendleft(request)

    def remove(self, request: InferRequest) -> None:
        self.gone.add(request)
        while self.requests and self.requests[0] in self.gone:
            self.gone.discard(self.requests.popleft())
        if len(self.gone) > len(self.requests) // 2 + _FEW:  # they hold tensors
            self._forget_gone()

    def _forget_gone(self) -> None:
        self.requests = deque(self)
        self.gone.clear()


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

        A request's own timeout may shorten the policy's default where that allows it; without a default it holds.
        """
        default: int = self.policy.default_timeout_microseconds
        if not default:
            return request.timeout_us
        if self.policy.allow_timeout_override and 0 < request.timeout_us < default:
            return request.timeout_us
        return default


class RequestQueue:
    """The queue of one model version, under the policies of its `dynamic_batching`.

    Attributes:
        size: the rows (batch sizes, each at least 1) of all requests that wait.
        expires: requests time out by a policy: also those that an instance could take at that moment.
        pace: how fast the queue is worked off.
        overloaded: requests with timeouts were refused since one came that an instance could take at once.
        own_timeouts: without a timeout of a policy, that of the request itself holds.
    """

    own_timeouts = True

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
        self._deadlines = Deadlines(clock, self.expire)
        self.pace = Pace()
        self.overloaded = False
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

    def groups(self) -> Iterator[Iterable[InferRequest]]:
        """The requests in the order in which they are served, those of a priority together."""
        for level in self._levels.values():
            yield level.unexpired
            yield level.delayed

    def push(self, request: InferRequest, *, busy: bool = False) -> None:
        """Let the request wait; `busy` if no instance could take it now.

        Raises:
            UnavailableError: its level is full, or it would wait for too long.
        """
        if self._plain:
            if request.timeout_us and self.own_timeouts:
                self._limit(request, self._first, request.timeout_us, busy)
            self._first.unexpired.requests.append(request)
        else:
            level = self._level(request)
            limit = level.policy.max_queue_size
            if limit and len(level) >= limit:
                msg = request.prefix + "Exceeds maximum queue size"
                wait_ns = self.pace.wait_ns(self.size, self._clock.now())
                raise UnavailableError(msg, retry_after_s=seconds_to_wait(wait_ns))
            timeout_us = level.timeout_us(request)
            if timeout_us and (self.own_timeouts or level.policy.default_timeout_microseconds):
                self._limit(request, level, timeout_us, busy)
            level.unexpired.requests.append(request)
        self.size += request.batch_size or 1

    def restore(self, request: InferRequest) -> None:
        """Let a request that was taken be the next again; it has waited already, and may wait as long as it must."""
        level = self._first if self._plain else self._level(request)
        level.unexpired.restore(request)
        self.size += request.batch_size or 1

    def pop(self) -> InferRequest:
        """Take the request that is served next."""
        if self._plain:
            request = self._first.unexpired.pop()
        else:
            level = next(level for level in self._levels.values() if len(level))
            request = (level.unexpired if len(level.unexpired) else level.delayed).pop()
        if self._deadlines:
            self._deadlines.discard(request)
        self.size -= request.batch_size or 1
        return request

    def remove(self, request: InferRequest) -> None:
        """Take out a request that waits."""
        level = self._level(request)
        delayed = len(level.delayed) > 0 and request in level.delayed.requests
        (level.delayed if delayed else level.unexpired).remove(request)
        self._deadlines.discard(request)
        self.size -= request.batch_size or 1

    def _level(self, request: InferRequest) -> _Level:
        level = self._levels.get(request.priority)
        return self._level_of(request.priority) if level is None else level  # an empty one is false

    def _level_of(self, priority: int) -> _Level:
        """The level of a priority, that of the default for one that there is not; made when it is first asked for."""
        number = priority if priority in self._priorities else self._default_level
        level = self._levels.get(number)
        if level is None:
            level = self._levels[number] = _Level(self._policies.get(number, self._default_policy))
            self._levels = dict(sorted(self._levels.items()))
        return level

    def _limit(self, request: InferRequest, level: _Level, timeout_us: int, busy: bool) -> None:
        """Let the request wait for no longer than that.

        Raises:
            UnavailableError: it would.
        """
        timeout_ns = timeout_us * MICROSECOND
        pace = self.pace
        pace.measuring = True
        if not busy:
            self.overloaded = False
        elif (self.size or self.overloaded) and level.policy.timeout_action != ModelQueuePolicy.DELAY:
            wait_ns = pace.wait_ns(self._rows_before(request), self._clock.now())
            execution_ns = pace.execution_ns if self.overloaded and fits(pace.execution_ns, timeout_ns) else 0
            if wait_ns + execution_ns > (timeout_ns - timeout_ns // 8 if execution_ns else timeout_ns):
                self.overloaded = True
                msg = (
                    f"Request timeout expired: it would wait for about {_milliseconds(wait_ns)} before an execution of "
                    f"about {_milliseconds(pace.execution_ns)}, and its timeout is {_milliseconds(timeout_ns)}"
                )
                raise UnavailableError(msg, retry_after_s=seconds_to_wait(wait_ns))
        self._deadlines.add(request, timeout_ns)

    def _rows_before(self, request: InferRequest) -> int:
        """At least so many rows wait that are served before the request's."""
        if len(self._levels) == 1:
            return self.size
        own = self._level(request)
        rows = 0
        for level in self._levels.values():
            rows += len(level)
            if level is own:
                break
        return rows

    def expire(self) -> None:
        """Let the requests time out whose deadlines have passed, without waiting for the timer."""
        now = self._clock.now()
        while (
            (first := self._deadlines.first) is not None and first.when <= now and first.request is not None
        ):
            self._time_out(first.request)

    def expire_late(self, rows: int) -> None:
        """Let requests time out that could not be answered in time if they ran now, while more than `rows` wait."""
        execution_ns = self.pace.execution_ns
        now = self._clock.now()
        while self.size > rows and (first := self._deadlines.first) is not None and first.request is not None:
            if fits(execution_ns, first.when - now) or not fits(execution_ns, first.timeout_ns):
                return
            self._time_out(first.request)

    def _time_out(self, request: InferRequest) -> None:
        self._deadlines.discard(request)
        level = self._level(request)
        level.unexpired.remove(request)
        if level.policy.timeout_action == ModelQueuePolicy.DELAY:
            level.delayed.requests.append(request)
            return
        self.overloaded = True
        self.size -= request.batch_size or 1
        self._on_timeout(request)


def fits(execution_ns: int, left_ns: int) -> bool:
    """Whether an execution of about that time is over in the time that is left, even if it takes a quarter longer."""
    return execution_ns + execution_ns // 4 <= left_ns


def _milliseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / MILLISECOND:.4g} ms"
