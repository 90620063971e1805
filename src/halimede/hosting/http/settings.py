"""What clients of the host may ask of a connection."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection. Times are in seconds, sizes in bytes.

    Attributes:
        head_bytes: request line and headers together.
        headers: how many headers.
        head_timeout: from the first byte of a request to the end of its headers.
        body_timeout: how long nothing may come of a body that is waited for.
        send_timeout: how long a client may read nothing of a response.
        linger: how long input is read and thrown away after an error that ends the connection.
    """

    head_bytes: int = 65_536
    headers: int = 256
    head_timeout: float = 30.0
    body_timeout: float = 60.0
    send_timeout: float = 120.0
    linger: float = 5.0
