"""The handshakes of one listener: bounded in time and number, and told in the log when they fail.

A handshake takes up to a millisecond of computing. One is served in each turn of the loop, so that many clients that
connect at once do not hold up the requests of those that are connected.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from halimede.net.peers import client_text
from halimede.net.tls.connection import TlsConnection
from halimede.net.tls.identity import Identity

logger = logging.getLogger("halimede")

TIMEOUT_S: Final = 10.0
"""How long a handshake may take."""

AT_ONCE: Final = 1024
"""Handshakes of a listener that may be under way."""

_SILENCE_S: Final = 1.0
"""How long failures of a kind are only counted after one was logged, so that strangers cannot fill the log."""

_NO_CERTIFICATE: Final = "the client has shown no certificate"
_NO_COMMON_VERSION: Final = "the client offers neither TLS 1.2 nor 1.3"
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": _NO_CERTIFICATE,
    "HTTP_REQUEST": "the client speaks HTTP without TLS",
    "WRONG_VERSION_NUMBER": "the client speaks something else than TLS",
    "UNSUPPORTED_PROTOCOL": _NO_COMMON_VERSION,
    "NO_SHARED_CIPHER": "the client offers no cipher that this server has",
}
_ALERT: Final = "_ALERT_"
"""In the name of a failure that the client has told of by an alert."""


class Handshakes:
    """Makes the connections of a listener.

    Args:
        service: what the log calls the listener.
        identity: what clients are shown and asked.
        factory: makes the protocol of a connection whose handshake is done.
        timeout_s: how long a handshake may take.
        at_once: how many may be under way. With one more, the oldest is broken off, so that clients who do not go on
            keep nobody out.
        on_end: called when one is over.
    """

    def __init__(
        self,
        service: str,
        identity: Identity,
        factory: Callable[[], asyncio.BaseProtocol],
        timeout_s: float = TIMEOUT_S,
        at_once: int = AT_ONCE,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_end = on_end
        self._service = service
        self._identity = identity
        self._factory = factory
        self._timeout_s = timeout_s
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._open: dict[TlsConnection, asyncio.TimerHandle] = {}
        self._ready: dict[TlsConnection, None] = {}  # in the order in which they are served
        self._time = self._loop.time
        self._logged: dict[str, tuple[float, int]] = {}  # until when a reason is only counted, and its count

    def connect(self) -> TlsConnection:
        """The protocol of a TCP connection."""
        return TlsConnection(self._identity.context, self)

    @property
    def under_way(self) -> int:
        """How many have begun and are not finished."""
        return len(self._open)

    def close(self) -> None:
        """Break off those that are under way."""
        for connection in list(self._open):
            self._forget(connection)
            connection.abort()

    # connections call

    def began(self, connection: TlsConnection) -> None:
        """A client has connected."""
        if len(self._open) >= self._at_once:
            oldest = next(iter(self._open))
            self._break_off(oldest, f"{self._at_once} others are unfinished too, and more clients come")
        self._open[connection] = self._loop.call_later(
            self._timeout_s, self._break_off, connection, f"it took longer than {self._timeout_s:g} seconds"
        )

    def ready(self, connection: TlsConnection) -> None:
        """It can go on."""
        if not self._ready:
            self._loop.call_soon(self._serve_one)
        self._ready[connection] = None

    def _serve_one(self) -> None:
        connection = next(iter(self._ready))
        del self._ready[connection]
        if self._ready:
            self._loop.call_soon(self._serve_one)
        connection.shake_hands()

    def succeeded(self, connection: TlsConnection) -> asyncio.BaseProtocol | None:
        """The protocol to speak; None if the client has not agreed to it."""
        self._forget(connection)
        wanted = self._identity.required_protocol
        if wanted and connection.get_extra_info("ssl_object").selected_alpn_protocol() != wanted:
            self._log(connection, f"the client does not offer '{wanted}' by ALPN")
            return None
        return self._factory()

    def failed(self, connection: TlsConnection, error: Exception | None) -> None:
        """It has come to nothing."""
        if connection in self._open:
            self._forget(connection)
            if error is not None:
                self._log(connection, reason_of(error))

    def _break_off(self, connection: TlsConnection, reason: str) -> None:
        self._forget(connection)
        self._log(connection, reason)
        connection.abort()

    def _forget(self, connection: TlsConnection) -> None:
        self._open.pop(connection).cancel()
        self._on_end()

    def _log(self, connection: TlsConnection, reason: str) -> None:
        now = self._time()
        silent_until, not_logged = self._logged.get(reason, (0.0, 0))
        if now < silent_until:
            self._logged[reason] = (silent_until, not_logged + 1)
            return
        more = f" ({not_logged} more failures were not logged)" if not_logged else ""
        logger.info(
            "%s: the TLS handshake of %s failed: %s%s", self._service, client_text(connection), reason, more
        )
        self._logged[reason] = (now + _SILENCE_S, 0)


def reason_of(error: Exception) -> str:
    """Why a handshake has failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    name = str(getattr(error, "reason", None) or "")
    if name in _REASONS:
        return _REASONS[name]
    if _ALERT in name:
        alert = name.partition(_ALERT)[2].replace("_", " ").lower()
        return f"the client refuses it, perhaps for the server's certificate: {alert}"
    return name.replace("_", " ").lower() or str(error)
