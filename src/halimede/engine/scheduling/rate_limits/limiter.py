"""The rate limiter (`--rate-limit=execution_count`): instances execute only while they hold what they need.

An execution takes everything that its instance declares at once, or waits. Instances that wait have their turn in the
order of *executions × priority*, the smallest first. One that waits for a resource keeps those behind it from taking
what it needs of the same ones, so that an instance that needs much is not overtaken for ever by those that need
little; instances that need nothing of these go on. An instance that had nothing to do for a while is not owed what it
missed: it is counted as if it had executed as often as the one whose turn was last.

An execution that cannot go on, as it waits for an answer of another model, may lend what it holds: when, decides
`engine/calls/loans.py`. What is lent goes back to the pool when neither lender nor borrower need it any more.
"""

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from halimede.config.model_config_pb2 import ModelRateLimiter
from halimede.core.requests import InferRequest
from halimede.engine.scheduling.rate_limits.pools import Needs, Pools, Resource, declared_needs
from halimede.engine.settings import ResourceLimit
from halimede.workers.host import WorkerName

Wake = Callable[[Any], object]
"""Called with a runner that may run a batch now: it calls `acquire` in the course of this call, or lets it pass."""


class State(Enum):
    """Where an instance is with its resources.

    IDLE → WAITING → GRANTED → HELD → IDLE; from WAITING and GRANTED it goes back to IDLE if nothing is to be run.
    """

    IDLE = auto()
    WAITING = auto()
    GRANTED = auto()
    HELD = auto()


@dataclass(slots=True, eq=False)
class Loan:
    """A part of what one execution holds that another one uses."""

    lender: "Claim"
    borrower: "Claim"
    resource: Resource
    count: int


@dataclass(slots=True, eq=False)
class Claim:
    """What an instance needs to execute, and what it has of that.

    Attributes:
        runner: what runs its batches.
        name: the instance.
        declared: what it declares.
        needs: what it needs: what it declares without the zeros.
        priority: its turn comes the later the higher this number is.
        turn: executions × priority; the smallest is the next.
        order: which of equals has waited longer.
        state: where it is.
        grants: how often it was granted what it needs.
        wake: whom to tell that it may run a batch.
        own: what it has of the pools. With what it has borrowed, that is what it needs while it may run a batch.
        borrowed: what others lent to it.
        lent: what it lent to others.
        lent_for: if it runs on a loan, the requests that the loan is for.
        loan: the number of the loan that it runs on, counted by the limiter; 0 for none.
    """

    runner: Any
    name: WorkerName
    declared: Needs
    needs: Needs
    priority: int
    turn: int = 0
    order: int = 0
    state: State = State.IDLE
    grants: int = 0
    wake: Wake | None = None
    own: dict[Resource, int] = field(default_factory=dict)
    borrowed: list[Loan] = field(default_factory=list)
    lent: list[Loan] = field(default_factory=list)
    lent_for: Sequence[InferRequest] | None = None
    loan: int = 0

    def lendable(self, resource: Resource) -> int:
        """How much it could lend."""
        lent = sum(loan.count for loan in self.lent if loan.resource == resource)
        return self.needs.get(resource, 0) - lent


class RateLimiter:
    """Says when instances may run batches. Lives on the event loop.

    A scheduler whose instances need resources does this:

    * Before it forms a batch for an idle instance, it calls `acquire`. If that is False, the instance is no longer
      idle for it until `wake` is called with it; then it looks at its queue again as ever.
    * If `acquire` was True, and `borrowed_for` is not None, the batch is to be one of these requests and nothing else;
      any batch if none of them can be run yet.
    * It calls `release` when the batch has run, or will not run, whatever became of it: before it looks for the next
      one, so that its turn is weighed against those of the others.
    * It calls `withdraw` when an instance that may be waiting is no longer to be used.

    Instances that need nothing are unknown here: they may always run.

    Attributes:
        waiting: those that wait, by their turn.
        on_blocked: called when some still wait after everything that is available was granted.
    """

    def __init__(self, limits: Sequence[ResourceLimit], call_soon: Callable[..., object]) -> None:
        """A limiter of these pools, which wakes schedulers through `call_soon`."""
        self.waiting: list[Claim] = []
        self.on_blocked: Callable[[], None] | None = None
        self._pools = Pools(limits)
        self._call_soon = call_soon
        self._claims: dict[Any, Claim] = {}
        self._levels: dict[Resource, int] = {}  # the turn that had something of it last
        self._order = 0
        self._loans = 0
        self._settling = False

    # Instances come and go

    def add(self, runner: Any, name: WorkerName, limits: ModelRateLimiter, device: int) -> bool:
        """Let an instance run only while it holds what it declares: False if that is nothing.

        Args:
            runner: what runs its batches.
            name: the instance.
            limits: what it declares.
            device: the number of its device.

        Raises:
            InvalidArgumentError: that could never be met.
        """
        declared = declared_needs(limits, device)
        needs = {resource: count for resource, count in declared.items() if count}
        self._pools.resize([declared, *(claim.declared for claim in self._claims.values())])
        self._claims[runner] = Claim(runner, name, declared, needs, max(1, limits.priority))
        return bool(needs)

    def check(self, limits: ModelRateLimiter, device: int) -> None:
        """Refuse what an instance on the device declares, if it could never be met.

        Raises:
            InvalidArgumentError: it could not.
        """
        declared = [claim.declared for claim in self._claims.values()]
        try:
            self._pools.resize([declared_needs(limits, device), *declared])
        finally:
            self._pools.resize(declared)

    def remove(self, runner: Any) -> None:
        """Forget an instance; what it holds is given back."""
        claim = self._claims.pop(runner, None)
        if claim is None:
            return
        if claim.state is State.WAITING:
            self._stop_waiting(claim)
        self._give_back(claim)
        self._pools.resize(each.declared for each in self._claims.values())
        for resource in claim.declared:
            if not any(resource in each.declared for each in self._claims.values()):
                self._levels.pop(resource, None)
        self._settle_soon()

    # What schedulers call

    def acquire(self, runner: Any, wake: Wake) -> bool:
        """Whether the instance may run a batch now; if not, `wake` is called with it when it may."""
        claim = self._claims.get(runner)
        if claim is None or not claim.needs:
            return True
        if claim.state is State.IDLE:
            claim.wake = wake
            self._wait(claim)
            self._grant_waiting(claim)
        if claim.state is State.GRANTED:
            claim.state = State.HELD
            return True
        self._look_for_loans()
        return False

    def borrowed_for(self, runner: Any) -> Sequence[InferRequest] | None:
        """The only requests that an instance which may run a batch may run; None for any."""
        claim = self._claims.get(runner)
        return None if claim is None else claim.lent_for

    def release(self, runner: Any, *, executed: bool = True) -> None:
        """The instance has run its batch; or has none to run, and did not execute. Other instances have their turn."""
        claim = self._claims.get(runner)
        if claim is None or claim.state is not State.HELD:
            return
        if executed:
            claim.turn += claim.priority
        self._give_back(claim)
        self._settle_soon()

    def withdraw(self, runner: Any) -> None:
        """The instance is not to be given a batch; one that it runs is not affected."""
        claim = self._claims.get(runner)
        if claim is None or claim.state in (State.IDLE, State.HELD):
            return
        if claim.state is State.WAITING:
            self._stop_waiting(claim)
        self._give_back(claim)
        self._settle_soon()

    # Granting

    def _settle_soon(self) -> None:
        """Grant what is available at the end of this turn of the loop: whoever gave it back may ask for it again."""
        if self.waiting and not self._settling:
            self._settling = True
            self._call_soon(self._settle)

    def _settle(self) -> None:
        """Grant what is available, and see whether those that still wait could be lent what they need."""
        self._settling = False
        self._grant_waiting()
        self._look_for_loans()

    def _wait(self, claim: Claim) -> None:
        levels = self._levels
        claim.turn = max(claim.turn, *(levels.get(resource, 0) for resource in claim.needs))
        self._order += 1
        claim.order = self._order
        claim.state = State.WAITING
        insort(self.waiting, claim, key=_turn)

    def _stop_waiting(self, claim: Claim) -> None:
        self.waiting.remove(claim)
        claim.state = State.IDLE

    def _grant_waiting(self, caller: Claim | None = None) -> None:
        """Grant those that wait what they need, each in its turn; the caller is not woken, as it sees for itself."""
        if not self.waiting:
            return
        pools, kept = self._pools, set[Resource]()
        for claim in tuple(self.waiting):
            if kept.isdisjoint(claim.needs) and pools.holds(claim.needs):
                pools.take(claim.needs)
                claim.own = dict(claim.needs)
                self._grant(claim, woken=claim is not caller)
            else:
                kept.update(claim.needs)

    def _grant(self, claim: Claim, *, woken: bool) -> None:
        self.waiting.remove(claim)
        claim.state = State.GRANTED
        claim.grants += 1
        for resource in claim.needs:
            self._levels[resource] = max(claim.turn, self._levels.get(resource, 0))
        if woken:
            self._call_soon(self._wake, claim, claim.grants)

    def _wake(self, claim: Claim, grant: int) -> None:
        if claim.state is not State.GRANTED or claim.grants != grant:
            return  # it acquired by itself, or was withdrawn
        assert claim.wake is not None
        claim.wake(claim.runner)
        if claim.state is State.GRANTED and claim.grants == grant:  # there is nothing to run any more
            self._give_back(claim)
            self._settle_soon()

    def _look_for_loans(self) -> None:
        if self.waiting and self.on_blocked is not None:
            self.on_blocked()

    def _give_back(self, claim: Claim) -> None:
        """Give back what the claim has. What it lent stays with those that use it."""
        own, borrowed = claim.own, claim.borrowed
        for loan in claim.lent:
            borrower, resource, left = loan.borrower, loan.resource, loan.count
            borrower.borrowed.remove(loan)
            for source in borrowed:  # what it had borrowed itself is passed on first
                if source.resource == resource and left and source.count:
                    count = min(left, source.count)
                    source.count -= count
                    left -= count
                    _lend(source.lender, borrower, resource, count)
            if left:
                own[resource] -= left
                borrower.own[resource] = borrower.own.get(resource, 0) + left
        for source in borrowed:
            source.lender.lent.remove(source)
        for resource, count in own.items():
            if count:
                self._pools.give_back(resource, count)
        claim.own, claim.borrowed, claim.lent, claim.lent_for, claim.loan = {}, [], [], None, 0
        claim.state = State.IDLE

    # Loans

    def holders(self) -> list[Claim]:
        """The instances that execute, or may."""
        return [claim for claim in self._claims.values() if claim.state in (State.HELD, State.GRANTED)]

    def going_on_without(self, names: Collection[WorkerName], *, in_turn: bool) -> list[Claim]:
        """Those that wait for nothing that instances of these names hold.

        Args:
            names: the instances.
            in_turn: leave out those whose turn comes after that of one which needs the same, and waits for these.
        """
        left = {
            resource: self._pools.size(resource)
            for claim in self.waiting
            for resource in claim.needs
        }  # fmt: skip
        for claim in self.holders():
            if claim.name in names:
                for resource, count in claim.own.items():
                    left[resource] = left.get(resource, 0) - count
        going_on: list[Claim] = []
        kept: set[Resource] = set()
        for claim in self.waiting:
            if kept.isdisjoint(claim.needs) and all(left[each] >= n for each, n in claim.needs.items()):
                going_on.append(claim)
            elif in_turn:
                kept.update(claim.needs)
        return going_on

    def lend(self, claim: Claim, lenders: Iterable[Claim], requests: Sequence[InferRequest]) -> bool:
        """Let an instance that waits run one of the requests, with what is available and what these lend it.

        Returns:
            whether that is enough; if not, nothing has changed.
        """
        lenders = list(lenders)
        own: dict[Resource, int] = {}
        loans: list[tuple[Claim, Resource, int]] = []
        for resource, count in claim.needs.items():
            own[resource] = min(count, max(0, self._pools.available(resource)))
            short = count - own[resource]
            for lender in lenders:
                part = min(short, lender.lendable(resource))
                if part > 0:
                    loans.append((lender, resource, part))
                    short -= part
            if short:
                return False
        self._pools.take(own)
        claim.own = own
        for lender, resource, part in loans:
            _lend(lender, claim, resource, part)
        claim.lent_for = requests
        self._loans += 1
        claim.loan = self._loans
        self._grant(claim, woken=True)
        self._settle_soon()  # what was kept for it is free
        return True


def _lend(lender: Claim, borrower: Claim, resource: Resource, count: int) -> None:
    loan = Loan(lender, borrower, resource, count)
    lender.lent.append(loan)
    borrower.borrowed.append(loan)


def _turn(claim: Claim) -> tuple[int, int]:
    return claim.turn, claim.order
