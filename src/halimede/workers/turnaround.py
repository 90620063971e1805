"""How quickly a worker answers, and what follows of that: what it is sent ahead, and when it is waited for."""

QUICK_NS = 200_000
"""An instance whose executions take less is sent the next ones before it has answered."""

MAX_AHEAD = 8

WAITED_NS = 500_000
"""An instance whose executions take less may be waited for: for as long as a batch of the server's own process may run
on the event loop while requests come one by one."""

MIN_UNWAITED, MAX_UNWAITED = 64, 8192
"""After a wait in vain, so many executions are not waited for: twice as many each time, and less after good ones."""


HOP_NS = 60_000
"""What a batch takes on its way to a worker and back, more or less."""


class Turnaround:
    """What is known of the executions of one worker.

    Attributes:
        ahead: so many batches it may have before it has answered.
    """

    __slots__ = ("_concurrency", "_cost_ns", "_fixed", "_most", "_next_unwaited", "_unwaited", "ahead")

    def __init__(self, concurrency: int) -> None:
        """Nothing is known; the worker runs so many executions at once."""
        self.ahead = concurrency
        self._concurrency = concurrency
        self._most = MAX_AHEAD if concurrency == 1 else concurrency
        self._fixed = False
        self._cost_ns = QUICK_NS << 3
        self._unwaited = MIN_UNWAITED  # so many executions are not waited for
        self._next_unwaited = MIN_UNWAITED

    def run_one_by_one(self) -> None:
        """Let it have one batch only, whatever it could run at once."""
        self._most = self.ahead = 1

    def send_none_ahead(self) -> None:
        """Let it have no more than it runs at once, however quick it is."""
        self._fixed = True
        self.ahead = min(self._concurrency, self._most)

    def send_none(self) -> None:
        """Let it have nothing more."""
        self._fixed = True
        self.ahead = 0

    def measure(self, took_ns: int) -> None:
        """An execution took so long. Others may have had the processor: the short times are the true ones."""
        more = took_ns - self._cost_ns
        self._cost_ns += more >> (5 if more > 0 else 2)
        if self._fixed:
            return
        if self._concurrency > 1:
            self.ahead = self._most  # what is sent runs at once
        else:
            self.ahead = max(1, min(self._most, QUICK_NS // (self._cost_ns + 1)))

    def may_wait(self) -> bool:
        """Whether to wait on the spot for the answer to a batch that is sent now, if nothing else is to be done."""
        if self._unwaited > 0:
            self._unwaited -= 1
            return False
        return self._cost_ns < WAITED_NS

    def busy_ns(self, longest_ns: int) -> int:
        """How long to look for the answer before going to sleep for it: twice its usual time; 0 if that is too long."""
        usual = self._cost_ns + HOP_NS
        return min(2 * usual, longest_ns) if usual < longest_ns else 0

    def waited(self, *, in_vain: bool) -> None:
        """The worker was waited for."""
        if in_vain:
            self._unwaited = self._next_unwaited
            self._next_unwaited = min(2 * self._next_unwaited, MAX_UNWAITED)
        else:
            self._next_unwaited = max(MIN_UNWAITED, self._next_unwaited - 1)
