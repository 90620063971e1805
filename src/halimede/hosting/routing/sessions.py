"""Stateful sessions: requests that name one go to the instance that has opened it.

    client ── NEW_SESSION ──▶ an instance, as routing says
    client ◀── ID; Expires=… ── which opens one: its own id, the instance and the end become the id that clients know
    client ── that id ──▶ the same instance, which sees its own id again

The id that clients know holds all that a router has to know, and a code that nobody else can make; so that every
process of the host, and the next one, routes it without asking anybody. What no id can tell is that a session was
closed: that is kept in a file, and told to the other routers, until it would have expired.
"""

import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from halimede.core.clock import WALL_CLOCK, WallClock
from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.routing.closed_sessions import ClosedSessions
from halimede.hosting.routing.heads import CLOSED_SESSION, NEW_SESSION
from halimede.hosting.routing.selection import choose_variant
from halimede.hosting.routing.table import EndpointRoute, Target, VariantRoute
from halimede.hosting.secret_file import read_secret
from halimede.http1.upstream import ResponseHead

_NEW = "NEW_SESSION"
"""What a client says in place of an id to have a session opened."""

_ID_CHARACTERS = 226
"""Of an id that clients know: with its end it may have 256 (SageMaker's limit)."""

_CODE_CHARACTERS = 24
_TOKEN = re.compile(
    rf"(?P<expires>[0-9a-f]{{10}})(?P<nonce>[0-9a-f]{{8}})(?P<code>[0-9a-f]{{{_CODE_CHARACTERS}}})(?P<length>[0-9a-f]{{2}})(?P<rest>.+)"
)
_OPENED = re.compile(
    r"(?P<id>[a-zA-Z0-9](?:-*[a-zA-Z0-9])*);\s?Expires=(?P<expires>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"
)
"""How a container says that it has opened a session."""


class SessionError(Exception):
    """A container has said something of a session that makes no sense."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session that a container has opened.

    Attributes:
        token: what clients call it.
        id: what its container calls it.
        instance: the instance that has it.
        expires: its end, in seconds since 1970 on the host's `WallClock`.
    """

    token: str
    id: str
    instance: str
    expires: int


@dataclass(frozen=True, slots=True)
class SessionUse:
    """An invocation's part in a session.

    Attributes:
        sessions: all of them.
        route: the endpoint.
        variant: the variant that the invocation goes to.
        target: the instance that it has to go to; None if it is to open a session, wherever that may be.
        session: the session; None if it is to open one.
    """

    sessions: "Sessions"
    route: EndpointRoute
    variant: VariantRoute
    target: Target | None
    session: Session | None

    def response_of(self, head: ResponseHead, target: Target) -> ResponseHead:
        """An instance's response as its client gets it: with the ids that clients know.

        Raises:
            SessionError: it opens a session in a way that makes no sense.
        """
        headers = dict(head.headers)
        closed = headers.pop(CLOSED_SESSION, None)
        if self.session is not None and closed == self.session.id:
            self.sessions.close(self.session.token, self.session.expires)
            headers[CLOSED_SESSION] = self.session.token
        opened = headers.get(NEW_SESSION)
        if opened is not None:
            headers[NEW_SESSION] = self.sessions.issue(self.route, target.id, opened)
        changed = copy(head)
        changed.headers = headers
        return changed


def _nobody(_: str, __: int) -> None:
    """Nobody else routes."""


class Sessions:
    """The sessions of all endpoints. Lives on the event loop.

    Attributes:
        on_closed: told of each session that is closed here: what clients call it, and when it would have ended.
    """

    def __init__(self, key: bytes = b"", clock: WallClock = WALL_CLOCK) -> None:
        """Sessions.

        Args:
            key: what codes are made with, the same in all processes of a host; empty for one of its own.
            clock: the time.
        """
        self.key = key or secrets.token_bytes(32)
        self.on_closed: Callable[[str, int], None] = _nobody
        self._clock = clock
        self._closed = ClosedSessions(clock.now)

    def open(self, directory: Path) -> None:
        """Have the key and the closed sessions that are in a directory, and keep them there. Blocks."""
        self.key = read_secret(directory / "sessions.key", "sessions")
        self._closed.open(directory / "sessions.closed")

    def end(self) -> None:
        """Write no more of what is closed."""
        self._closed.close()

    # invocations

    def use(self, route: EndpointRoute, asked: str, wanted: str | None) -> SessionUse:
        """What an invocation that names a session, or wants one, has to do with it.

        Args:
            route: the endpoint.
            asked: the session, or ``NEW_SESSION``.
            wanted: the variant that the client wants; None for any.

        Raises:
            ApiError: there is no such session (any more), or there can be none.
        """
        if asked == _NEW:
            variant = choose_variant(route, wanted)
            use = SessionUse(self, route, variant, None, None)
        else:
            session = self.find(route, asked)
            variant, target = _place(route, session)
            if wanted is not None and wanted != variant.spec.name:
                msg = f"Session {asked} is of variant {variant.spec.name}, not of variant {wanted}"
                raise invalid_invocation(msg)
            use = SessionUse(self, route, variant, target, session)
        if variant.residency is not None:
            msg = f"Endpoint {route.name} is a multi-model endpoint, which does not support sessions."
            raise invalid_invocation(msg)
        return use

    def find(self, route: EndpointRoute, token: str) -> Session:
        """The session that clients call so.

        Raises:
            ApiError: it is not known, has expired or is closed.
        """
        session = self.read(route, token)
        if session is None:
            raise _refused(route, token, "is not known")
        if session.expires <= self._clock.now():
            when = datetime.fromtimestamp(session.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            raise _refused(route, token, f"expired at {when}")
        if token in self._closed:
            raise _refused(route, token, "is closed")
        return session

    # ids

    def issue(self, route: EndpointRoute, instance: str, opened: str) -> str:
        """What clients are told of a session, of what its container has said.

        Args:
            route: the endpoint.
            instance: the instance.
            opened: such as ``s-17; Expires=2030-01-01T00:00:00Z``.

        Raises:
            SessionError: that makes no sense.
        """
        match = _OPENED.fullmatch(opened)
        if match is None:
            raise SessionError(f"expected 'ID; Expires=YYYY-MM-DDThh:mm:ssZ', got {opened[:300]!r}")
        try:
            end = datetime.strptime(match["expires"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise SessionError(f"there is no time {match['expires']}") from None
        expires = max(round(self._clock.of_system(end.timestamp())), 0)
        nonce = secrets.token_hex(4)  # a container may use an id again that it has closed
        code = self._code(route, instance, match["id"], expires, nonce)
        token = f"{expires:010x}{nonce}{code}{len(instance):02x}{instance}-{match['id']}"
        if len(token) > _ID_CHARACTERS:
            most = _ID_CHARACTERS - len(token) + len(match["id"])
            raise SessionError(f"its id has {len(match['id'])} characters; at most {most} are allowed")
        return f"{token}; Expires={match['expires']}"

    def read(self, route: EndpointRoute, token: str) -> Session | None:
        """The session that clients call so; None if no process of this host has ever called one so."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            return None
        length, rest = int(match["length"], 16), match["rest"]
        session = Session(token, rest[length + 1 :], rest[:length], int(match["expires"], 16))
        code = self._code(route, session.instance, session.id, session.expires, match["nonce"])
        return session if hmac.compare_digest(code, match["code"]) else None

    def _code(self, route: EndpointRoute, instance: str, name: str, expires: int, nonce: str) -> str:
        text = "\0".join((*route.id, instance, name, str(expires), nonce))
        return hmac.digest(self.key, text.encode(), "sha256").hex()[:_CODE_CHARACTERS]

    # what is closed

    def close(self, token: str, expires: int) -> None:
        """A session was closed by its container; the other processes are told."""
        self.note(token, expires)
        self.on_closed(token, expires)

    def note(self, token: str, expires: int) -> None:
        """A session is closed that would have ended at that time."""
        self._closed.add(token, expires)

    def closed(self) -> Mapping[str, int]:
        """The sessions that are closed, by what clients call them, with their ends."""
        return self._closed.all()


def _place(route: EndpointRoute, session: Session) -> tuple[VariantRoute, Target]:
    """The variant and the instance of a session.

    Raises:
        ApiError: the instance takes no requests any more.
    """
    for variants in route.fleets():
        for variant in variants.values():
            for target in variant.targets:
                if target.id == session.instance and not target.draining:
                    return variant, target
    raise _refused(route, session.token, f"is lost, as its instance {session.instance} is gone")


def _refused(route: EndpointRoute, token: str, what: str) -> ApiError:
    msg = f"Session {token} of endpoint {route.name} {what}. Open another one with the SessionId {_NEW}."
    return invalid_invocation(msg)
