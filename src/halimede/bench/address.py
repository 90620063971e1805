"""Where a server is."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from halimede.bench.errors import BenchError


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address.

    Attributes:
        host: name or IP address.
        port: the TCP port.
        tls: the connection is encrypted.
        authorities: a file of certificates (PEM) that are trusted in place of the system's.
        path: what all paths begin with, without a slash at its end.
    """

    host: str
    port: int
    tls: bool = False
    authorities: Path | None = None
    path: str = ""

    @property
    def authority(self) -> str:
        """Host and port as a `Host` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def context(self, *protocols: str) -> ssl.SSLContext | None:
        """What checks the server's certificate and offers these protocols; None without TLS.

        Raises:
            BenchError: the file of certificates cannot be read.
        """
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.authorities)
        except OSError as error:
            raise BenchError(f"The certificates in {self.authorities} cannot be read: {error}") from None
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context


def parse(text: str, default_port: int, authorities: Path | None = None) -> Address:
    """The address that a user has written: `host`, `host:port` or a URL.

    Raises:
        BenchError: it is none of these.
    """
    url = text if "://" in text else f"//{text}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BenchError(f"'{text}' is no address: {error}") from None
    if parts.scheme not in ("", "http", "https", "grpc", "grpcs") or not parts.hostname:
        raise BenchError(f"'{text}' is no address: write host:port, http://host:port or https://host:port")
    tls = parts.scheme in ("https", "grpcs")
    if port is None and parts.scheme in ("http", "https"):
        port = 443 if tls else 80
    return Address(parts.hostname, port or default_port, tls, authorities, parts.path.rstrip("/"))
