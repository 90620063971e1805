"""InvokeEndpoint and InvokeEndpointWithResponseStream: every invocation that is under way. Lives on the event loop."""

import asyncio
from dataclasses import dataclass
from time import monotonic_ns
from urllib.parse import unquote

from halimede.core.tasks import Tasks
from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.http.request import Request
from halimede.hosting.identity import Scope
from halimede.hosting.routing.answers import answer_error
from halimede.hosting.routing.containers import check_target_container
from halimede.hosting.routing.heads import SESSION, TARGET_CONTAINER, TARGET_VARIANT
from halimede.hosting.routing.invocation import Invocation, too_large
from halimede.hosting.routing.selection import choose_variant
from halimede.hosting.routing.sessions import Sessions
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.routing.table import EndpointRoute, RoutingTable, Target
from halimede.http1.head import Head
from halimede.http1.upstream import why_refused

PREFIX = "/endpoints/"
STREAMED = "invocations-response-stream"
ASYNCHRONOUS = "async-invocations"
_WHOLE = "invocations"
OPERATIONS = (_WHOLE, STREAMED)

_TICK_S = 0.25
"""How exact deadlines are."""

_CONNECT_S = 2.0
"""So long an instance may take to accept a connection while there are others that may: its machine may be gone."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request to the runtime asks for.

    Attributes:
        endpoint: account, region and name of the endpoint that is meant.
        streamed: the response is an event stream.
        variant: the variant that is wanted; None for any.
        container: the container that is meant; None if none is named.
        session: the session that is meant, or ``NEW_SESSION``; None for none.
        refusal: why there can be no answer.
    """

    endpoint: tuple[str, str, str]
    streamed: bool
    variant: str | None
    container: str | None
    session: str | None
    refusal: ApiError | None


def asked_of(head: Head, scope: Scope) -> Asked:
    """What a request asks for whose path begins with `PREFIX`, in a scope."""
    name, operation = operation_of(head.path)
    refusal = None
    if operation not in OPERATIONS:
        refusal = _unknown(head.path)
    elif head.method != "POST":
        refusal = ApiError("MethodNotAllowed", f"{head.path} takes POST, not {head.method}", 405)
    wanted, container, session = map(head.headers.get, (TARGET_VARIANT, TARGET_CONTAINER, SESSION))
    return Asked((*scope, name), operation == STREAMED, wanted, container, session, refusal)


class Invocations:
    """The invocations that are under way.

    Attributes:
        sessions: what is known of sessions.
    """

    def __init__(
        self,
        table: RoutingTable,
        settings: InvocationSettings | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self.sessions = sessions or Sessions()
        self._table = table
        self._settings = settings or InvocationSettings()
        self._loop = asyncio.get_running_loop()
        self._under_way: set[Invocation] = set()
        self._connecting = Tasks()
        self._timer = self._loop.call_later(_TICK_S, self._check_deadlines)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._under_way)

    @property
    def payload_bytes(self) -> int:
        """The largest body that is taken."""
        return self._settings.payload_bytes

    def handle(self, request: Request, scope: Scope, body: bytes | None = None) -> None:
        """Answer a request whose path begins with `PREFIX`.

        Args:
            request: the client's.
            scope: whose endpoint is meant.
            body: its whole body, if it has been read already.
        """
        self.begin(request, asked_of(request.head, scope), body)

    def begin(self, request: Request, asked: Asked, body: bytes | None = None) -> None:
        """Answer a request.

        Args:
            request: the client's.
            asked: what it asks for.
            body: its whole body, if it has been read already.
        """
        try:
            self._begin(request, asked, body)
        except ApiError as error:
            answer_error(request, error)

    def _begin(self, request: Request, asked: Asked, body: bytes | None) -> None:
        if asked.refusal is not None:
            answer_error(request, asked.refusal)
            return
        route = self._table.find(*asked.endpoint)
        if route is None:
            account, _, name = asked.endpoint
            raise invalid_invocation(f"Endpoint {name} of account {account} not found.")
        if route.asynchronous is not None:
            raise _asynchronous(route)
        size = request.head.length if body is None else len(body)
        if size > self._settings.payload_bytes:
            raise too_large(size, self._settings.payload_bytes)
        session = None
        if asked.session is None:
            variant = choose_variant(route, asked.variant)
        else:
            session = self.sessions.use(route, asked.session, asked.variant)
            variant = session.variant
        if asked.container is not None or variant.spec.direct:
            check_target_container(route, variant, asked.container)
        invocation = Invocation(
            request, body, route, variant, self._settings, self._under_way.discard, self._connect,
            streamed=asked.streamed, session=session,
        )  # fmt: skip
        self._under_way.add(invocation)
        try:
            invocation.begin()
        except ApiError as error:
            invocation.refuse(error)

    def _connect(self, invocation: Invocation, target: Target) -> None:
        limit = self._settings.timeout_s
        if invocation.has_choice:
            limit = min(limit, _CONNECT_S)
        opening = _open(invocation, target, limit)
        self._connecting.start(f"connecting to instance {target.id}", opening)

    def _check_deadlines(self) -> None:
        self._timer = self._loop.call_later(_TICK_S, self._check_deadlines)
        now = monotonic_ns()
        for invocation in [each for each in self._under_way if 0 < each.deadline_ns < now]:
            invocation.expire()

    def close(self) -> None:
        """Look at the time no more; nothing is under way."""
        self._timer.cancel()
        self._connecting.cancel()


async def _open(invocation: Invocation, target: Target, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            connection = await target.pool.connect()
    except OSError as error:
        if isinstance(error, TimeoutError) and not invocation.has_choice:
            invocation.expire()
            return
        target.refuse()
        invocation.refused(f"the instance accepts no connection ({why_refused(error)})")
        return
    except Exception as error:  # whoever asks must hear of it
        invocation.refused(f"the host could not connect to the instance: {error!r}")
        raise
    invocation.connected(connection)


def operation_of(path: str) -> tuple[str, str]:
    """The endpoint's name in a path that begins with `PREFIX`, and what follows it."""
    name, _, operation = path[len(PREFIX) :].partition("/")
    return unquote(name), operation


def _asynchronous(route: EndpointRoute) -> ApiError:
    msg = (
        f"Endpoint {route.name} of account {route.account} is an asynchronous endpoint, which does not answer at once; "
        f"use InvokeEndpointAsync"
    )
    return invalid_invocation(msg)


def _unknown(path: str) -> ApiError:
    known = ", ".join(f"{PREFIX}NAME/{each}" for each in (*OPERATIONS, ASYNCHRONOUS))
    msg = f"there is no operation {path}; paths are {known}"
    return ApiError("UnknownOperationException", msg, 404)
