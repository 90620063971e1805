"""What connections that have one of the last file descriptors get: a refusal, or whether the host lives."""

import orjson

from halimede.core.errors import UnavailableError
from halimede.hosting.http.connection import Handler
from halimede.hosting.http.request import Request

_PING = "/ping"


def refuse_all_but_ping(handler: Handler, error: UnavailableError) -> Handler:
    """What answers with the error and closes the connection, but for pings, which it leaves to the handler."""
    body = orjson.dumps({"message": error.message})

    def answer(request: Request) -> None:
        request.last()
        if request.head.path == _PING:
            handler(request)
        else:
            request.respond(503, body, (("Content-Type", "application/json"), ("Retry-After", "1")))

    return answer
