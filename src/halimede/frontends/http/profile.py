"""The call that takes a profile of the running server."""

from typing import TYPE_CHECKING, Any, Final

import orjson

from halimede.codec.value_ranges import shortened
from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.frontends.http.answers import end_with_client
from halimede.frontends.http.transport.exchange import Exchange

if TYPE_CHECKING:
    from halimede.frontends.profiling.sampler import Sampler

DEFAULTS: Final = {"seconds": 5, "rate": 100, "format": "text"}
FORMATS: Final = ("text", "json", "speedscope")
MOST: Final = {"seconds": 120, "rate": 1000}


class ProfileCall:
    """What answers it."""

    def __init__(self, sampler: "Sampler | None") -> None:
        """None: profiles are not allowed."""
        self._sampler = sampler

    async def answer(self, exchange: Exchange, document: dict[str, Any]) -> None:
        """Take the profile that the members of the body ask for, and answer with it; it ends if the client leaves.

        Raises:
            UnsupportedError: profiles are not allowed.
            InvalidArgumentError: a member is unknown or has a wrong value.
            HalimedeError: it cannot be taken.
        """
        if self._sampler is None:
            raise UnsupportedError("profiling is off: start the server with --profile=true")
        wanted = read_wishes(document)
        end_with_client(exchange)
        profile, samples = await self._sampler.profile(wanted["seconds"], wanted["rate"])
        if wanted["format"] == "text":
            exchange.respond(200, (profile.text().encode(),), "text/plain; charset=utf-8")
        elif wanted["format"] == "json":
            exchange.respond(200, (orjson.dumps(profile.document()),))
        else:
            from halimede.frontends.profiling.profile import with_stages

            exchange.respond(200, (orjson.dumps(with_stages(samples, f"halimede, process {profile.pid}")),))


def read_wishes(document: dict[str, Any]) -> dict[str, Any]:
    """Seconds, rate and format.

    Raises:
        InvalidArgumentError: a member is unknown or has a wrong value.
    """
    for name in document:
        if name not in DEFAULTS:
            raise InvalidArgumentError(
                f"a profile has no member {shortened(name)}; there are {', '.join(DEFAULTS)}"
            )
    wanted = {**DEFAULTS, **document}
    for name, most in MOST.items():
        value = wanted[name]
        if type(value) is not int or not 1 <= value <= most:
            raise InvalidArgumentError(
                f"{name} is {shortened(value)}; it must be an integer from 1 to {most}"
            )
    if wanted["format"] not in FORMATS:
        msg = f"format is {shortened(wanted['format'])}; it must be one of {', '.join(FORMATS)}"
        raise InvalidArgumentError(msg)
    return wanted
