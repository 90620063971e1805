"""The answers of one connection that its client does not take, against the memory for all such answers."""

from collections.abc import Callable
from typing import Protocol

from halimede.frontends.http.transport.exchange import Exchange, Reply
from halimede.http1.head import Refusal
from halimede.net.unsent import RETRY_AFTER_S, UnsentAnswers


class SlowConnection(Protocol):
    """What is asked of a connection while memory for answers is short."""

    @property
    def write_paused(self) -> bool:
        """The client reads too slowly."""

    @property
    def unread(self) -> int:
        """Bytes of answers that the socket has not taken, written or not."""

    def abort(self) -> None:
        """Break the connection off."""


class UnreadAnswers:
    """Counts what the socket does not take, and what is kept for answers that are not written yet."""

    __slots__ = ("_answers", "_connection", "_refusal_body", "_reserved")

    def __init__(
        self, connection: SlowConnection, answers: UnsentAnswers, refusal_body: Callable[[Refusal], bytes]
    ) -> None:
        self._connection = connection
        self._answers = answers
        self._refusal_body = refusal_body
        self._reserved = 0

    def changed(self) -> None:
        """The socket takes no more, or takes more again."""
        self._answers.update(self)

    def closed(self) -> None:
        """The connection is gone."""
        self._answers.forget(self)

    def admit(self, exchange: Exchange, size: int) -> bool:
        """Whether its reply, of so many bytes, may be sent; if not, the exchange has another reply now."""
        if exchange.reserved or self._answers.fits(size):
            return True
        exchange.reply = self._no_room()
        return False

    def wait(self, exchange: Exchange, size: int) -> None:
        """Count a reply that waits for an earlier one, or put another in its place."""
        self.reserve(exchange, size if self.admit(exchange, size) else 0)

    def check(self, exchange: Exchange, size: int) -> Reply | None:
        """Count what making an answer takes, until it is written; without room, the reply in its place."""
        if size and not self._answers.fits(size):
            return self._no_room()
        self.reserve(exchange, size)
        return None

    def reserve(self, exchange: Exchange, size: int) -> None:
        """Count so many bytes for an exchange from now on."""
        self._reserved += size - exchange.reserved
        exchange.reserved = size
        self._answers.update(self)

    def _no_room(self) -> Reply:
        body = self._refusal_body(Refusal(503, self._answers.refusal))
        return 503, (body,), "application/json", (("Retry-After", str(RETRY_AFTER_S)),)

    # the answers call

    @property
    def to_take(self) -> int:
        """Bytes of answers that wait."""
        return self._reserved + (self._connection.unread if self.waits else 0)

    @property
    def waits(self) -> bool:
        """Whether the client does not keep up."""
        return self._connection.write_paused

    def give_up(self) -> None:
        """Memory for answers is short, and the client takes nothing."""
        self._connection.abort()
