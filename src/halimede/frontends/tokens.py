"""Bearer tokens: who may call, as a file of hashes says.

A line of the file is NAME:sha256:HASH. Tokens are 256 random bits, so that one pass of SHA-256 hides them: nobody can
try all of them, and a slow hash such as scrypt, which protects words that people choose, would only make requests slow.
A token that is sent is looked up by its hash. How long that takes tells of hashes alone, from which no token follows.
"""

import hashlib
import logging
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from halimede.frontends.restrictions import CATEGORIES, PUBLIC
from halimede.net.file_watch import FileWatch

logger = logging.getLogger("halimede")

METRICS: Final = "metrics"
"""The group of what the metrics port answers."""

GROUPS: Final = (*CATEGORIES, METRICS)
"""Groups of calls that can need a token."""

DEFAULT_GROUPS: Final = frozenset(GROUPS) - {"health"}
"""Those that do unless a flag says otherwise."""

MISSING: Final = "this call needs a bearer token: send the header 'Authorization: Bearer TOKEN'"
WRONG: Final = "the bearer token is not valid"

_LINE: Final = re.compile(r"(?P<name>[^:\s]+):sha256:(?P<hash>[0-9a-fA-F]{64})")
_BYTES: Final = 32


class TokenFileError(Exception):
    """A file of tokens cannot be used; the text repeats nothing of its lines, which may hold a token."""


def new_token() -> str:
    """A token that nobody else has: 256 random bits."""
    return secrets.token_urlsafe(_BYTES)


def token_line(name: str, token: str) -> str:
    """The line by which a file knows a token.

    Args:
        name: who has it; without colons and white space.
        token: the token.
    """
    return f"{name}:sha256:{_hash(token).hex()}"


def parse_tokens(text: str) -> dict[bytes, str]:
    """Hash → name of each token in a file. Empty lines, and those that begin with #, say nothing.

    Raises:
        TokenFileError: a line is something else.
    """
    names: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        match = _LINE.fullmatch(content)
        if match is None:
            msg = f"line {number} is not NAME:sha256:HASH; make one with: halimede token NAME"
            raise TokenFileError(msg)
        names[bytes.fromhex(match["hash"])] = match["name"]
    return names


def parse_groups(text: str) -> frozenset[str]:
    """The groups of calls that need a token; the usual ones for "".

    Raises:
        ValueError: one is not known.
    """
    if not text:
        return DEFAULT_GROUPS
    groups = frozenset(name.strip() for name in text.split(","))
    for name in sorted(groups - set(GROUPS)):
        msg = f"'{name}' is no group of calls; known are {', '.join(GROUPS)}"
        raise ValueError(msg)
    return groups


class Admitting(Protocol):
    """A connection that remembers whom it has admitted."""

    def look_again(self) -> None:
        """Who may call has changed: what was admitted has to be admitted again."""


class Tokens:
    """The tokens of a file, which is read again when it changes. A changed file that cannot be used changes nothing.

    Connections remember what they have admitted; `admits` tells them when that is over.
    """

    def __init__(self, path: Path, groups: Iterable[str] = DEFAULT_GROUPS, interval_s: float = 1.0) -> None:
        """Read the file.

        Args:
            path: where it is.
            groups: groups of calls that need a token. A call that is in none of `GROUPS` needs one too.
            interval_s: seconds between two looks at the file.

        Raises:
            TokenFileError: it cannot be used.
        """
        self._connections: list[Iterable[Admitting]] = []
        self._path = path
        self._open = (frozenset(GROUPS) - frozenset(groups)) | {PUBLIC}
        self._watch = FileWatch([path], self._read_again, interval_s)
        self._names = self._read()

    def start(self) -> None:
        """Look for changes from now on."""
        self._watch.start()

    def close(self) -> None:
        """Look for no more changes."""
        self._watch.close()

    def admits(self, connections: Iterable[Admitting]) -> None:
        """Tell those connections, whichever they are then, when other tokens are valid than before."""
        self._connections.append(connections)

    def refusal(self, group: str, authorization: str | None) -> str:
        """Why a call is refused, "" if it is not.

        Args:
            group: the call's; "" for a call that there is not.
            authorization: the header of that name, None without one.
        """
        if group in self._open:
            return ""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return MISSING
        return "" if _hash(token.strip()) in self._names else WRONG

    def _read(self) -> dict[bytes, str]:
        try:
            names = parse_tokens(self._path.read_text("utf-8", "replace"))
        except OSError as error:
            msg = f"cannot read '{self._path}': {error.strerror}"
            raise TokenFileError(msg) from None
        except TokenFileError as error:
            msg = f"'{self._path}', {error}"
            raise TokenFileError(msg) from None
        if not names:
            logger.warning("'%s' holds no token: calls that need one are all refused", self._path)
        return names

    def _read_again(self) -> None:
        try:
            names = self._read()
        except TokenFileError as error:
            logger.error("Changed tokens are not used, those read before still are: %s", error)
            return
        new, old = set(names) - set(self._names), set(self._names) - set(names)
        logger.info("'%s' has changed: %d tokens came, %d went", self._path, len(new), len(old))
        self._names = names
        for connections in self._connections:
            for connection in connections:
                connection.look_again()


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
