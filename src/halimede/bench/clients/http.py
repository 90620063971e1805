"""HTTP/1.1, one request at a time on a connection that is kept."""

import httptools

from halimede.bench.clients.lane import Lane, Recorder

_ERROR_TEXT = 300
_DATA = b"data:"


class HttpLane(Lane):
    """A connection to an HTTP server.

    Attributes:
        streaming: answers are server-sent events, each a response.
    """

    def __init__(self, recorder: Recorder, *, streaming: bool) -> None:
        super().__init__(recorder)
        self.streaming = streaming
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self._failed = ""

    def connection_made(self, transport: object) -> None:
        """Begin: requests may be sent at once."""
        super().connection_made(transport)
        self.usable = True
        self.ready()

    def write(self, message: bytes) -> None:
        """Write the request."""
        self._body = b""
        self._failed = ""
        self._transport.write(message)

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._failed = f"the answer is not HTTP: {error}"
            self._transport.abort()

    def on_body(self, part: bytes) -> None:
        """Take a part of the body."""
        if self.streaming:
            *events, self._body = (self._body + part).replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                self._event(event)
        elif len(self._body) < _ERROR_TEXT:
            self._body += part[:_ERROR_TEXT]

    def _event(self, event: bytes) -> None:
        if not event.startswith(_DATA):
            return
        content = event[len(_DATA) :].lstrip()
        if content.startswith(b'{"error"'):
            self._failed = _readable(content)
        elif content != b"[DONE]":
            self.response()

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if not self.busy:
            return
        status = self._parser.get_status_code()
        if status >= 400:
            self._failed = f"{status}: {_readable(self._body)}"
        elif not self.streaming:
            self.response()
        keep = self._parser.should_keep_alive()
        if not keep:
            self.usable = False
            self._transport.close()
        self.finish(self._failed)


def _readable(text: bytes) -> str:
    return text[:_ERROR_TEXT].decode(errors="replace").strip()
