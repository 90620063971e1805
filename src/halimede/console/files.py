"""The files of the console's pages: each read once, when it is first asked for.

Servers and hosts have the same page around different scripts: those of `server/` and of `host/`.
"""

from functools import lru_cache
from importlib import resources
from typing import Final, NamedTuple

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What browsers let the pages do: load what is in this package, and talk to the server that they come from."""

HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
)
"""Headers of each."""

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
}


class PageFile(NamedTuple):
    """A file as it is sent."""

    body: bytes
    content_type: str


@lru_cache(128)
def page_file(name: str) -> PageFile | None:
    """The file of that name, whose parts are apart by slashes; None if there is none."""
    file = resources.files(__package__).joinpath("static", *name.split("/"))
    if not file.is_file():
        return None
    return PageFile(file.read_bytes(), _TYPES[name.rpartition(".")[2]])


@lru_cache(2)
def index_file(kind: str) -> PageFile:
    """The page of a `server` or a `host`."""
    page = page_file("index.html")
    assert page is not None, "it is in the package"
    return page._replace(body=page.body.replace(b"{kind}", kind.encode()))
