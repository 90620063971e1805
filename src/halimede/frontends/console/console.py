"""The console's calls over HTTP.

    GET /console                 the page, and its files below that path
    GET /v2/console/snapshot     what the server is doing, as JSON: see `snapshot`
    GET /v2/console/events       the same each second, as server-sent events named `snapshot`
    GET /v2/console/logs         records of the log as they come, as server-sent events named `logs`; `?after=N` leaves
                                 out those up to number N

The page and its files tell nothing, and are sent to everyone. Snapshots need what the calls of the repository and of
statistics need. Records of the log are sent to clients on the server's machine; to others only if those need to show
who they are. No call changes anything, and none is answered for pages of other sites.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import parse_qs

import orjson

from halimede.console.files import HEADERS, index_file, page_file
from halimede.core.errors import InvalidArgumentError, PermissionDeniedError
from halimede.core.origins import is_loopback
from halimede.engine.engine import Engine
from halimede.frontends.console.feed import Feed, SnapshotEvents, send_logs
from halimede.frontends.console.snapshot import Document, Snapshots
from halimede.frontends.http.answers import AnswerInSteps, refuse_restricted
from halimede.frontends.http.routes import Call, Route
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.recent_logs import RecentLogs
from halimede.frontends.restrictions import Restriction
from halimede.frontends.traffic import Traffic

_SAME_SITE: Final = (None, "same-origin", "none")
"""Values of the header Sec-Fetch-Site, which browsers send, of requests that no other site's page has caused."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """What the command line decides about the console.

    Attributes:
        server_id: the server's name in its metadata.
        restrictions: category of calls → the header that opens it.
        openai: whether the server speaks OpenAI's API.
        logs_for_all: whether clients on other machines may read the log: they have to show who they are.
    """

    server_id: str = "triton"
    restrictions: Mapping[str, Restriction] = field(default_factory=dict)
    openai: bool = False
    logs_for_all: bool = False


class Console:
    """Answers the console's calls. Lives on the event loop.

    Attributes:
        calls: what answers which call.
        snapshots: makes the snapshots.
    """

    def __init__(
        self, engine: Engine, settings: ConsoleSettings, recent: RecentLogs, traffic: Sequence[Traffic]
    ) -> None:
        lifecycle = engine.lifecycle
        self._settings = settings
        self.snapshots = Snapshots(engine, settings.server_id, traffic, openai=settings.openai)
        self._events = Feed(
            engine.clock,
            SnapshotEvents(engine.clock, self.snapshots.take).send,
            lambda: lifecycle.stopping,
        )
        self._logs = Feed(engine.clock, partial(send_logs, recent), lambda: lifecycle.stopping)
        lifecycle.on_readiness.extend((self._events.end, self._logs.end))
        self.calls: dict[Call, Callable[[Exchange, Route], None]] = {
            Call.CONSOLE: _send_file,
            Call.CONSOLE_SNAPSHOT: self._snapshot,
            Call.CONSOLE_EVENTS: self._stream_snapshots,
            Call.CONSOLE_LOGS: self._stream_logs,
        }

    def _snapshot(self, exchange: Exchange, _route: Route) -> None:
        if self._may_read(exchange):
            AnswerInSteps(exchange, self.snapshots.take(), partial(_send_snapshot, exchange)).take()

    def _stream_snapshots(self, exchange: Exchange, _route: Route) -> None:
        if self._may_read(exchange):
            self._events.listen(exchange)

    def _stream_logs(self, exchange: Exchange, _route: Route) -> None:
        _refuse_other_sites(exchange)
        opened = self._settings.logs_for_all or "logging" in self._settings.restrictions
        if not (opened or is_loopback(exchange.peer)):
            msg = (
                "the log is shown only to clients on the server's machine; --token-file, --http-use-ssl-mutual or "
                "--http-restricted-api=logging:… opens it to others who show who they are"
            )
            raise PermissionDeniedError(msg)
        self._logs.listen(exchange, _after(exchange.query))

    def _may_read(self, exchange: Exchange) -> bool:
        """Whether the client may see snapshots; if not, it has its answer."""
        _refuse_other_sites(exchange)
        return not refuse_restricted(exchange, self._settings.restrictions, "statistics")


def _send_snapshot(exchange: Exchange, document: Document) -> None:
    exchange.respond(200, (orjson.dumps(document),), headers=_NOT_KEPT)


def _send_file(exchange: Exchange, route: Route) -> None:
    """Answer with the page or a file of it, with 404 if there is none of that name."""
    file = page_file(route.file) if route.file else index_file("server")
    if file is None:
        exchange.respond(404, (b'{"error":"Not Found"}',))
    else:
        exchange.respond(200, (file.body,), file.content_type, HEADERS)


_NOT_KEPT: Final = (("Cache-Control", "no-store"),)


def _refuse_other_sites(exchange: Exchange) -> None:
    """Nothing, if no page of another site has caused the request.

    Raises:
        PermissionDeniedError: one has.
    """
    if exchange.headers.get("sec-fetch-site") not in _SAME_SITE:
        raise PermissionDeniedError("the console's calls are not answered for pages of other sites")


def _after(query: str) -> int:
    """The number of the latest record that the client has, 0 for none.

    Raises:
        InvalidArgumentError: it is no number.
    """
    text = parse_qs(query).get("after", ["0"])[-1]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgumentError("'after' must be the number of a record of the log, such as 0")
    return int(text)
