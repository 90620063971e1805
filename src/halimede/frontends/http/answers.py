"""Answers that several calls give: errors, refusals, and those that come later."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Generic, TypeVar

import orjson

from halimede.core.errors import CancelledError, HalimedeError, UnavailableError
from halimede.core.tasks import Tasks
from halimede.frontends.http.compression import UnsupportedEncodingError
from halimede.frontends.http.transport.exchange import Exchange, Handler, Headers
from halimede.frontends.restrictions import Restriction

Made = TypeVar("Made")

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


class AnswerInSteps(Generic[Made]):
    """Steps that are taken on the loop, with others' work between them, until the client leaves.

    (An object, as functions that call each other later would hold the answer until Python looks for cycles.)
    """

    __slots__ = ("_exchange", "_respond_error", "_steps", "_then")

    def __init__(
        self,
        exchange: Exchange,
        steps: "Generator[None, None, Made]",
        then: "Callable[[Made], None]",
        respond_error: RespondError = respond_error,
    ) -> None:
        """Steps of which none was taken.

        Args:
            exchange: what is answered.
            steps: what makes the result.
            then: gets it, and answers.
            respond_error: answers with an error that a step raises.
        """
        self._exchange = exchange
        self._steps = steps
        self._then = then
        self._respond_error = respond_error

    def take(self) -> None:
        """Take a step, and the next one soon."""
        exchange = self._exchange
        if exchange.closed:
            self._steps.close()
            return
        try:
            next(self._steps)
        except StopIteration as end:
            self._then(end.value)
        except HalimedeError as error:
            self._respond_error(exchange, error)
        except Exception as error:  # in a callback of the loop, nobody else would answer
            exchange.fail(error)
        else:
            asyncio.get_running_loop().call_soon(self.take)


def answer_later(
    exchange: Exchange,
    work: "asyncio.Future[Made]",
    then: "Callable[[Made], None]",
    respond_error: RespondError = respond_error,
    release: Callable[[], None] | None = None,
) -> None:
    """Go on with what the work gives, if the client is still there. Work that has not begun when it leaves is left out.

    Args:
        exchange: what is answered.
        work: what is waited for.
        then: gets what it gives, and answers.
        respond_error: answers with an error of either.
        release: called when it has gone on, or is not to; None for nothing.
    """

    def done(work: "asyncio.Future[Made]") -> None:
        if exchange.closed or work.cancelled():
            return
        try:
            then(work.result())
        except HalimedeError as error:
            respond_error(exchange, error)
        except Exception as error:  # in a callback of the loop, nobody else would answer
            exchange.fail(error)

    def leave() -> None:
        work.cancel()

    exchange.on_disconnect = leave
    work.add_done_callback(done)
    if release is not None:
        work.add_done_callback(lambda _: release())


def end_with_client(exchange: Exchange) -> None:
    """Cancel the current task if the client leaves, until `on_disconnect` of the exchange is something else."""
    task = asyncio.current_task()
    assert task is not None

    def leave() -> None:
        task.cancel()

    exchange.on_disconnect = leave


class BackgroundAnswers:
    """Answers that take their time, each in a task of its own.

    A task is not cancelled when its client leaves, unless its work says so: loads and unloads are seen through.
    """

    def __init__(self) -> None:
        self._tasks = Tasks()

    def answer(
        self,
        exchange: Exchange,
        work: Coroutine[Any, Any, None],
        respond_error: RespondError = respond_error,
    ) -> None:
        """Do the work, which answers the exchange; if it raises an error, answer with that."""
        self._tasks.start("answering a request", _guarded(exchange, work, respond_error))


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
