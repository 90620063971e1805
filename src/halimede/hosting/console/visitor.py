"""Who looks at the console, what their key lets them see, and what they ask for."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller

_NAME: Final = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9]){0,62}")
_MAX_SHOWN: Final = 128


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks for something that the console shows.

    Attributes:
        caller: their account and region.
        key: what says what they may see; None where there are no keys, and everybody sees everything.
        query: what follows the path's question mark.
    """

    caller: Caller
    key: Key | None
    query: str = ""

    def check(self, action: str, endpoint: str | None = None) -> None:
        """Refuse what they may not see.

        Raises:
            ApiError: their key does not let them (``AccessDeniedException``).
        """
        if self.key is not None:
            self.key.check(action, endpoint)

    def may(self, action: str, endpoint: str | None = None) -> bool:
        """Whether they may see that."""
        try:
            self.check(action, endpoint)
        except ApiError:
            return False
        return True

    def parameter(self, name: str) -> str:
        """A parameter of the query; "" if it has none of that name."""
        return dict(parse_qsl(self.query)).get(name, "")

    @property
    def endpoint(self) -> str:
        """The name of the endpoint that they ask for.

        Raises:
            ApiError: they name none, or what cannot be a name.
        """
        name = self.parameter("endpoint")
        if not _NAME.fullmatch(name):
            got = f"'{name[:_MAX_SHOWN]}' is no name of an endpoint" if name else "the endpoint is missing"
            raise invalid(f"{got}; ask for ?endpoint=NAME, with letters, digits and hyphens, at most 63")
        return name
