"""The runtime's door: who may invoke what, and what of that is known from a head alone.

Clients repeat their heads, so for the last few hundred it is remembered whether anything is special about them.
"""

from typing import Protocol

from halimede.core.memo import Memo
from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.refusals import RefusedError
from halimede.hosting.access.web_pages import Judgement, WebPageGuard
from halimede.hosting.api.digests import digest, target_of
from halimede.hosting.api.invocation_heads import REFUSALS
from halimede.hosting.api.tasks import RequestTasks
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request
from halimede.hosting.identity import Scope
from halimede.hosting.routing.answers import answer_error
from halimede.hosting.routing.heads import TARGET_MODEL
from halimede.hosting.routing.invocations import (
    ASYNCHRONOUS,
    STREAMED,
    Asked,
    Invocations,
    asked_of,
    operation_of,
)
from halimede.http1.head import Head

_ACTIONS = {STREAMED: "InvokeEndpointWithResponseStream", ASYNCHRONOUS: "InvokeEndpointAsync"}
"""What a request is called by what its path ends with; any other one is InvokeEndpoint."""


class AsyncInvocations(Protocol):
    """Answers InvokeEndpointAsync."""

    async def handle(self, request: Request, scope: Scope, body: bytes | None = None) -> None:
        """Answer a request, whose body may have been read."""


class Runtime:
    """Admits requests to the runtime. Lives on the event loop."""

    def __init__(
        self,
        gate: Gate,
        invocations: Invocations,
        guard: WebPageGuard,
        denials: Denials,
        asynchronous: AsyncInvocations | None = None,
    ) -> None:
        """A runtime.

        Args:
            gate: who may come in.
            invocations: what is done with those who may.
            guard: judges requests by the web pages that they come from.
            denials: the log of requests that were denied.
            asynchronous: answers InvokeEndpointAsync; None in a process that has no such requests.
        """
        self._asynchronous = asynchronous
        self._gate = gate
        self._invocations = invocations
        self._guard = guard
        self._denials = denials
        self._tasks = RequestTasks()
        self._local: Memo[Head, Asked | None] = Memo(lambda head: self._admitted(head, from_loopback=True))
        self._remote: Memo[Head, Asked | None] = Memo(lambda head: self._admitted(head, from_loopback=False))

    def _admitted(self, head: Head, *, from_loopback: bool) -> Asked | None:
        """What a request with that head asks for, if whoever sends it may, whatever the body is."""
        if self._gate.verifies or self._judge(head, from_loopback=from_loopback) is not None:
            return None
        if REFUSALS[head] is not None or self._is_asynchronous(head):
            return None
        return asked_of(head, self._gate.scope_of(head))

    def _judge(self, head: Head, *, from_loopback: bool) -> Judgement | None:
        """What is special about the page that a request comes from, if it comes from one; the console's may invoke."""
        return self._guard.judge(head, from_loopback=from_loopback, own_pages=True)

    def _is_asynchronous(self, head: Head) -> bool:
        return self._asynchronous is not None and operation_of(head.path)[1] == ASYNCHRONOUS

    def handle(self, request: Request) -> None:
        """Answer a request whose path begins with `PREFIX`, now or later."""
        asked = (self._local if request.from_loopback else self._remote)[request.head]
        if asked is not None:
            self._invocations.begin(request, asked)
        else:
            self._consider(request)

    def _consider(self, request: Request) -> None:
        head = request.head
        judgement = self._judge(head, from_loopback=request.from_loopback)
        if judgement is not None:
            request.further = judgement.cors
            if judgement.preflight:
                request.respond(204)
                return
            if judgement.refusal is not None:
                self._denials.note(request, judgement.refusal)
                answer_error(request, judgement.refusal)
                return
        if self._gate.verifies:
            self._tasks.begin(request, self._verify(request))
        elif self._asynchronous is not None and self._is_asynchronous(head):
            self._tasks.begin(request, self._asynchronous.handle(request, self._gate.scope_of(head)))
        else:
            self._invoke(request, self._gate.scope_of(head))

    async def _verify(self, request: Request) -> None:
        """Go on once the signature, which covers the body, has been verified."""
        head = request.head
        try:
            self._gate.recognize(head)
            body = await request.read(self._invocations.payload_bytes)
            caller, key = self._gate.admit(head, target_of(head), await digest(body), ("sagemaker",))
            if key is not None:
                endpoint, operation = operation_of(head.path)
                action = _ACTIONS.get(operation, "InvokeEndpoint")
                key.check(f"sagemaker:{action}", endpoint, head.headers.get(TARGET_MODEL))
        except ApiError as error:
            if error.status == 403 or isinstance(error, RefusedError):
                self._denials.note(request, error)
            answer_error(request, error)
            return
        if self._asynchronous is not None and self._is_asynchronous(head):
            await self._asynchronous.handle(request, caller.scope, body)
        else:
            self._invoke(request, caller.scope, body)

    def _invoke(self, request: Request, scope: Scope, body: bytes | None = None) -> None:
        refusal = REFUSALS[request.head]
        if refusal is None:
            self._invocations.handle(request, scope, body)
        else:
            answer_error(request, refusal)

    async def close(self) -> None:
        """End what is under way."""
        await self._tasks.close()
