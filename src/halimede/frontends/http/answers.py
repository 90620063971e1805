"""Answers that several calls give: errors, refusals, and those that come later."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import orjson

from halimede.core.errors import CancelledError, HalimedeError, UnavailableError
from halimede.frontends.http.compression import UnsupportedEncodingError
from halimede.frontends.http.transport.exchange import Exchange, Handler, Headers
from halimede.frontends.restrictions import Restriction

RespondError = Callable[[Exchange, HalimedeError], None]
"""Answers an exchange with an error."""


def respond_error(exchange: Exchange, error: HalimedeError) -> None:
    """Answer with the error's status and text, and with when to try again, if that is known."""
    headers: Headers = ()
    if isinstance(error, UnsupportedEncodingError):
        headers = (("Accept-Encoding", "gzip, deflate"),)
    elif isinstance(error, UnavailableError) and error.retry_after_s:
        headers = (("Retry-After", str(error.retry_after_s)),)
    exchange.respond(error.code.http_status, (error_body(error.message),), headers=headers)


def error_body(message: str) -> bytes:
    """The JSON that tells of an error."""
    return orjson.dumps({"error": message})


def refuse_restricted(exchange: Exchange, restrictions: Mapping[str, Restriction], category: str) -> bool:
    """Whether the call needs a header that the request lacks, and is answered with that."""
    restriction = restrictions.get(category)
    if restriction is None or restriction.opened_by(exchange.headers.get(restriction.header)):
        return False
    msg = f"This API is restricted, expecting header '{restriction.name}'"
    exchange.respond(403, (error_body(msg),))
    return True


def refuse_all_but_health(
    handler: Handler, is_health: Callable[[str], bool], error: HalimedeError
) -> Handler:
    """What answers with the error, but for health checks, which it leaves to the handler.

    Args:
        handler: what answers other connections.
        is_health: whether a path is that of a health check.
        error: why all else is refused.
    """

    def answer(exchange: Exchange) -> None:
        if is_health(exchange.path):
            handler(exchange)
        else:
            respond_error(exchange, error)

    return answer


class BackgroundAnswers:
    """Answers that take their time, each in a task of its own.

    A task is not cancelled when its client leaves, unless its work says so: loads and unloads are seen through.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(
        self,
        exchange: Exchange,
        work: Coroutine[Any, Any, None],
        respond_error: RespondError = respond_error,
    ) -> None:
        """Do the work, which answers the exchange; if it raises an error, answer with that."""
        task = asyncio.get_running_loop().create_task(_guarded(exchange, work, respond_error))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _guarded(exchange: Exchange, work: Coroutine[Any, Any, None], respond_error: RespondError) -> None:
    try:
        await work
    except asyncio.CancelledError:  # the client left; the answer lets the connection end
        respond_error(exchange, CancelledError("the request was cancelled"))
        raise
    except HalimedeError as error:
        respond_error(exchange, error)
    except Exception as error:  # in a task, nobody else would answer
        exchange.fail(error)
