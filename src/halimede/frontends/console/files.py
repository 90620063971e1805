"""The files of the page, as they are sent: each read once, when it is first asked for."""

from functools import lru_cache
from importlib import resources
from typing import Final

from halimede.frontends.http.transport.exchange import Exchange, Headers

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What browsers let the page do: load what is in this package, and talk to the server that it comes from."""

HEADERS: Final[Headers] = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
)

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
}


def send_file(exchange: Exchange, name: str) -> None:
    """Answer with a file of the page, with 404 if there is none of that name."""
    body = _read(name)
    if body is None:
        exchange.respond(404, (b'{"error":"Not Found"}',))
    else:
        exchange.respond(200, (body,), _TYPES[name.rpartition(".")[2]], HEADERS)


@lru_cache(64)
def _read(name: str) -> bytes | None:
    file = resources.files(__package__).joinpath("static", *name.split("/"))
    return file.read_bytes() if file.is_file() else None
