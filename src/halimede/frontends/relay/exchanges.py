"""Exchanges of a front end's clients, in the engine's process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from halimede.core.tensors import Buffer
from halimede.frontends.http.transport.exchange import Exchange, Handler, MakeExchange, Reply
from halimede.frontends.relay import wire
from halimede.frontends.relay.link import Link, Payload
from halimede.frontends.relay.traffic import RelayedTraffic
from halimede.frontends.relay.windows import Window
from halimede.http1.head import Head, add_header


@dataclass(frozen=True, slots=True)
class Service:
    """What answers the requests of one HTTP endpoint.

    Attributes:
        handler: called with each exchange.
        make_exchange: makes an exchange of a request.
        traffic: what passes through it.
    """

    handler: Handler
    make_exchange: MakeExchange
    traffic: RelayedTraffic


class RelayedExchanges:
    """Those of one front end that are under way. Lives on the event loop."""

    def __init__(self, link: Link, services: Mapping[str, Service]) -> None:
        """None yet; `services` says what answers those of each endpoint."""
        self._link = link
        self._services = services
        self._open: dict[int, _Connection] = {}

    def handlers(self) -> dict[int, Callable[..., None]]:
        """What takes items of the front end."""
        return {wire.EXCHANGE: self._begin}

    def _begin(
        self,
        number: int,
        service: str,
        method: str,
        target: str,
        sent: Sequence[tuple[str, str]],
        body: Payload,
        peer: str,
        client: str,
        body_began_ns: int,
    ) -> None:
        served = self._services[service]
        head = _head(method, target, sent)
        connection = _Connection(self, self._link, served.traffic, number, peer, client, body_began_ns)
        self._open[number] = connection
        served.traffic.in_flight += 1
        view = memoryview(self._link.bytes_of(body))
        connection.exchange = exchange = served.make_exchange(connection, head, view)
        try:
            served.handler(exchange)
        except Exception as error:  # the other requests go on
            exchange.fail(error)

    def over(self, number: int) -> None:
        """An exchange has its answer."""
        connection = self._open.pop(number)
        connection.traffic.in_flight -= 1
        del connection.exchange  # they hold each other, and with them what was sent and answered

    def gone(self, number: int) -> bool:
        """The client of an exchange has gone; False if there is no such exchange."""
        connection = self._open.pop(number, None)
        if connection is not None:
            connection.traffic.in_flight -= 1
            connection.gone()
        return connection is not None

    def taken(self, number: int, size: int) -> bool:
        """The client of an exchange has taken so many bytes more; False if there is no such exchange."""
        connection = self._open.get(number)
        if connection is not None:
            connection.window.unread -= size
            connection.room()
        return connection is not None

    def room(self) -> None:
        """The front end takes items again."""
        for connection in list(self._open.values()):
            connection.room()

    def close(self) -> None:
        """The front end is gone, and with it all of its clients."""
        for number in list(self._open):
            self.gone(number)


class _Connection:
    """What an exchange takes for its connection."""

    def __init__(
        self,
        owner: RelayedExchanges,
        link: Link,
        traffic: RelayedTraffic,
        number: int,
        peer: str,
        client: str,
        body_began_ns: int,
    ) -> None:
        self.exchange: Exchange
        self.peer = peer
        self.client = client
        self.body_began_ns = body_began_ns
        self.traffic = traffic
        self.counts = traffic.counts
        self.unsent = 0
        self.window = Window()
        self._owner = owner
        self._link = link
        self._number = number

    @property
    def write_paused(self) -> bool:
        """The client, or its front end, is behind with what was sent."""
        return self.window.is_full or self._link.congested

    def reply_ready(self, exchange: Exchange) -> None:
        """The exchange has its reply."""
        assert exchange.reply is not None
        status, parts, media_type, _ = exchange.reply
        link = self._link
        payloads = link.payloads(parts)
        headers = exchange.reply_headers
        link.post(wire.REPLY, self._number, exchange.route, status, payloads, media_type, headers)
        self._owner.over(self._number)

    def reserve(self, exchange: Exchange, size: int) -> Reply | None:
        """There is always room: the front end counts what its clients do not read."""
        return None

    def stream_ready(self, exchange: Exchange) -> None:
        """The exchange's response comes in pieces."""
        stream = exchange.streamed
        assert stream is not None
        self._link.post(wire.STREAM, self._number, exchange.route, stream.status, stream.content_type)
        stream.start(b"")

    def write(self, buffers: Sequence[Buffer], size: int) -> None:
        """Send pieces of the body, of so many bytes together."""
        link = self._link
        self.window.unread += size
        for piece in buffers:
            link.post(wire.PIECE, self._number, link.payload(piece))

    def stream_sent(self) -> None:
        """All pieces were sent."""
        self._link.post(wire.END, self._number)
        self.exchange.stream_sent()
        self._owner.over(self._number)

    def abort(self) -> None:
        """Break the connection off."""
        self._link.post(wire.ABORT, self._number)

    def room(self) -> None:
        """The client, or its front end, may take more."""
        if self.exchange.streamed is not None:
            self.exchange.streamed.flush()

    def gone(self) -> None:
        """The client has gone."""
        exchange = self.exchange
        exchange.lost()
        callback, exchange.on_disconnect = exchange.on_disconnect, None
        if callback is not None:
            callback()
        del self.exchange


def _head(method: str, target: str, sent: Sequence[tuple[str, str]]) -> Head:
    headers: dict[str, str] = {}
    for name, value in sent:
        add_header(headers, name, value)
    return Head(method, target, headers, sent, "1.0")  # whose answers are not sent in chunks
