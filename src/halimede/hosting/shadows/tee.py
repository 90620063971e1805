"""The observer of a production variant that has a shadow, and one copy of what it sees."""

import random
from collections.abc import Callable

from halimede.hosting.budget import Budget
from halimede.hosting.routing.heads import SESSION
from halimede.hosting.routing.table import Target, VariantRoute
from halimede.hosting.routing.taps import Tap
from halimede.hosting.shadows.settings import ShadowSettings
from halimede.http1.head import Head
from halimede.http1.upstream import ResponseHead

OVERHEAD_BYTES = 2048
"""What a copy takes beside its bodies."""


class Copy:
    """A copy of one invocation (`Tap`): first it holds what goes by, then it waits, is sent, and is compared.

    What it holds is taken from the budget as it comes, and given back by `release`. Nothing here waits: without room,
    or with too much of a body, the copy is lost.

    Attributes:
        shadow: where it goes.
        head: the client's.
        streamed: it is answered by an event stream.
        body: the request's, in the pieces in which it came.
        size: of that, in bytes.
        answer_head: of the primary's answer, if that is kept to be compared.
        answer: its body, in pieces.
        answer_size: of that, in bytes.
        status: what the client was told.
        primary_ns: how long the primary's instance took.
        since_ns: when it began to wait, or was sent.
        target: the instance that has it.
        tap: is told of it as of an invocation of the shadow variant.
    """

    __slots__ = (
        "_budget",
        "_complete",
        "_held",
        "_lost",
        "_on_lost",
        "_on_whole",
        "_settings",
        "answer",
        "answer_head",
        "answer_size",
        "body",
        "head",
        "primary_ns",
        "shadow",
        "since_ns",
        "size",
        "status",
        "streamed",
        "tap",
        "target",
    )

    def __init__(
        self,
        shadow: VariantRoute,
        head: Head,
        budget: Budget,
        settings: ShadowSettings,
        on_whole: Callable[["Copy"], None],
        on_lost: Callable[[VariantRoute], None],
        *,
        streamed: bool = False,
    ) -> None:
        """A copy of an invocation that begins.

        Args:
            shadow: where it goes.
            head: the client's.
            budget: of all copies.
            settings: limits.
            on_whole: called when the invocation is over and the copy may be sent.
            on_lost: called if it is lost before.
            streamed: it is answered by an event stream.
        """
        self.shadow = shadow
        self.head = head
        self.streamed = streamed
        self.body: list[bytes] = []
        self.size = 0
        self.answer_head: ResponseHead | None = None
        self.answer: list[bytes] = []
        self.status = 0
        self.primary_ns = 0
        self.since_ns = 0
        self.target: Target | None = None
        self.tap: Tap | None = None
        self.answer_size = 0
        self._budget = budget
        self._settings = settings
        self._on_whole = on_whole
        self._on_lost = on_lost
        self._complete = False
        self._held = 0
        self._lost = not self._take(OVERHEAD_BYTES)

    def _take(self, size: int) -> bool:
        if not self._budget.take(size):
            return False
        self._held += size
        return True

    def release(self) -> None:
        """Hold nothing any more."""
        self._budget.give_back(self._held)
        self._held = 0
        self.body.clear()
        self.drop_answer(give_back=False)

    def drop_answer(self, *, give_back: bool = True) -> None:
        """Compare nothing: keep nothing of the primary's answer."""
        if give_back:
            self._budget.give_back(self.answer_size)
            self._held -= self.answer_size
        self.answer_head = None
        self.answer.clear()
        self.answer_size = 0

    # Tap

    def request_data(self, data: bytes, *, complete: bool) -> None:
        """Keep some of the body."""
        if self._lost:
            return
        self.size += len(data)
        if self.size > self._settings.copy_bytes or not self._take(len(data)):
            self._lost = True
            self.release()
            return
        if data:
            self.body.append(data)
        self._complete = complete

    def response_begun(self, head: ResponseHead) -> None:
        """Keep the answer, if it is not known to be too large."""
        if not self._lost and head.length <= self._settings.answer_bytes:
            self.answer_head = head

    def response_data(self, data: bytes) -> None:
        """Keep some of it."""
        if self.answer_head is None:
            return
        if self.answer_size + len(data) > self._settings.answer_bytes or not self._take(len(data)):
            self.drop_answer()
            return
        self.answer_size += len(data)
        self.answer.append(data)

    def ended(self, status: int, model_ns: int) -> None:
        """The primary has been answered: now the copy may go, if its request was whole."""
        if self._lost:
            self.release()
            self._on_lost(self.shadow)
        elif not self._complete:
            self.release()
        else:
            if status != 200:
                self.drop_answer()
            self.status = status
            self.primary_ns = model_ns
            self._on_whole(self)


class ShadowObserver:
    """Looks at the invocations of a variant that has a shadow (`Observer`)."""

    def __init__(
        self,
        production: VariantRoute,
        shadow: VariantRoute,
        make: Callable[[VariantRoute, Head, bool], Copy | None],
        random: Callable[[], float] = random.random,
    ) -> None:
        """Looks at the production variant's; `make` makes a copy of one, unless it has no use for it."""
        self._production = production
        self._shadow = shadow
        self._make = make
        self._random = random

    def observe(self, head: Head, *, streamed: bool) -> Copy | None:
        """A copy, of such a share of requests as the shadow's weight is of the production variant's.

        Requests of stateful sessions have none: the session is the production variant's.
        """
        if SESSION in head.headers:
            return None
        weight, whole = self._shadow.weight, self._production.weight
        if weight < whole and self._random() * whole >= weight:
            return None
        if not weight:
            return None
        return self._make(self._shadow, head, streamed)
