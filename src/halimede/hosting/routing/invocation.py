"""One invocation: from a client's request to an instance and back, byte for byte.

    begin ─ place ─ connect ─ send … pump ─ response_begun … response_data ─ response_ended

Neither side's body is held but for a window: whoever reads slowly slows down whoever writes.
"""

from collections.abc import Callable
from time import monotonic_ns

from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.http.request import Request
from halimede.hosting.request_ids import request_id_header
from halimede.hosting.routing.answers import answer_error, model_error, no_answer, timed_out
from halimede.hosting.routing.containers import container_name
from halimede.hosting.routing.event_stream import payload_part, stream_error
from halimede.hosting.routing.heads import (
    FAILURE,
    REPLY_HEADS,
    REQUEST_HEADS,
    TARGET_MODEL,
    TARGET_VARIANT,
    session_reply_head,
    session_request_head,
    stream_head,
)
from halimede.hosting.routing.selection import able_elsewhere, choose_target
from halimede.hosting.routing.sessions import SessionError, SessionUse
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.routing.table import (
    UNREACHABLE,
    EndpointRoute,
    NothingDoneError,
    Placement,
    Target,
    VariantRoute,
)
from halimede.hosting.routing.taps import tap_of
from halimede.http1.upstream import ResponseHead, UpstreamConnection

_TEXT_BYTES = 16_384
"""So much of what an instance says of an error is passed on."""

_MISSED = (404, 507)
"""What an instance answers that does not have a model, or lacks the memory to run it: the request has not run."""

_NO_ANSWER = 500
"""What is counted of an instance that gave no whole response."""

_GONE = 499
"""What is counted for a client that did not wait."""


class Invocation:
    """One invocation. Lives on the event loop.

    Attributes:
        deadline_ns: when the instance must have answered, on the monotonic clock; 0 while the client, or a model that
            is loaded, is waited for.
    """

    __slots__ = (
        "_all_sent",
        "_began_ns",
        "_body",
        "_chunked",
        "_connect",
        "_done",
        "_elsewhere",
        "_kept",
        "_left_ns",
        "_on_done",
        "_path",
        "_placement",
        "_placements",
        "_received",
        "_request",
        "_response",
        "_route",
        "_sent_ns",
        "_session",
        "_settings",
        "_streamed",
        "_tap",
        "_target",
        "_text",
        "_upstream",
        "_variant",
        "deadline_ns",
    )

    def __init__(
        self,
        request: Request,
        body: bytes | None,
        route: EndpointRoute,
        variant: VariantRoute,
        settings: InvocationSettings,
        on_done: Callable[["Invocation"], None],
        connect: Callable[["Invocation", Target], None],
        *,
        streamed: bool,
        session: SessionUse | None = None,
    ) -> None:
        """An invocation that has not begun.

        Args:
            request: the client's.
            body: its whole body, if it has been read already.
            route: the endpoint.
            variant: the variant that it goes to.
            settings: limits.
            on_done: called when it has been answered.
            connect: opens a connection to an instance, for `connected` or `response_failed`.
            streamed: the response is an event stream.
            session: what it has to do with a session; None for nothing.
        """
        self.deadline_ns = 0
        self._request = request
        self._body = body
        self._route = route
        self._variant = variant
        self._settings = settings
        self._on_done = on_done
        self._connect = connect
        self._streamed = streamed
        self._session = session
        self._began_ns = monotonic_ns()
        self._sent_ns = 0
        self._left_ns = 0
        self._received = 0
        self._all_sent = False
        self._placements = 0
        self._path = "/invocations"
        self._target: Target | None = None
        self._placement: Placement | None = None
        self._upstream: UpstreamConnection | None = None
        self._response: ResponseHead | None = None
        self._text: bytearray | None = None
        self._kept: list[bytes] = []
        self._chunked = False
        self._elsewhere = False
        self._done = False
        self._tap = tap_of(variant.observers, request.head, streamed=streamed) if variant.observers else None
        if body is not None and self._tap is not None:
            self._tap.request_data(body, complete=True)

    def begin(self) -> None:
        """Send the request on its way.

        Raises:
            ApiError: it cannot be sent anywhere.
        """
        request, variant = self._request, self._variant
        model = request.head.headers.get(TARGET_MODEL)
        if variant.residency is None:
            if model is not None:
                msg = (
                    f"Endpoint {self._route.name} is not a multi-model endpoint and does not support target model "
                    f"header {model}."
                )
                raise invalid_invocation(msg)
            session = self._session
            target = choose_target(variant) if session is None or session.target is None else session.target
            request.on_disconnect = self._disconnected
            self._send_to(target)
            return
        if self._streamed:
            msg = f"Endpoint {self._route.name} is a multi-model endpoint, which gives no response streams"
            raise invalid_invocation(msg)
        if not model:
            msg = f"Endpoint {self._route.name} is a multi-model endpoint; say with TargetModel which model is meant"
            raise invalid_invocation(msg)
        request.on_disconnect = self._disconnected
        self._place(model)

    # to the instance

    def _place(self, model: str) -> None:
        """Find an instance that holds the model, or have it loaded."""
        residency = self._variant.residency
        assert residency is not None
        self._placements += 1
        deadline = self._began_ns + int(self._settings.model_wait_s * 1e9)
        placement = residency.place(model, deadline, self._placed)
        if placement is not None:
            self._placed(placement)

    def _placed(self, placement: Placement | ApiError) -> None:
        if self._done:
            if isinstance(placement, Placement):
                placement.release()
            return
        if isinstance(placement, ApiError):
            if isinstance(placement, NothingDoneError) and self._response is not None:
                self._fail_as_answered(self._response.status)
            else:
                self._fail(placement)
            return
        self._response = self._text = None  # of an earlier placement
        if self._placements == 1:
            wait = monotonic_ns() - self._began_ns
            self._variant.meter.placed(wait, cache_hit=placement.cache_hit)
        self._placement = placement
        self._path = placement.path
        self._send_to(placement.target)

    def _send_to(self, target: Target, *, again: bool = False) -> None:
        self._target = target
        target.inflight += 1
        if self._placements <= 1 and not again:
            self._variant.meter.sent(len(self._variant.targets))
        connection = target.pool.idle()
        if connection is not None:
            self.connected(connection)
        else:
            self._await_instance(monotonic_ns())
            self._connect(self, target)

    @property
    def has_choice(self) -> bool:
        """Whether another instance could take the request, as long as it has not been sent."""
        if self._session is not None and self._session.target is not None:
            return False
        return len(self._variant.targets) > 1 and self._placements < self._settings.placements

    def refused(self, reason: str) -> None:
        """The instance accepts no connection: nothing has been sent, so that another one may take the request."""
        if self._variant.residency is not None:
            if not self._done and self._retry(UNREACHABLE):
                return
        elif not self._done and self.has_choice:
            others = [each for each in self._variant.targets if not each.refuses and not each.draining]
            if others:
                self._leave()
                self._send_to(choose_target(self._variant), again=True)
                return
        self.response_failed(reason)

    def connected(self, connection: UpstreamConnection) -> None:
        """There is a connection to the instance: send the request."""
        target, request = self._target, self._request
        if self._done or target is None:
            connection.close()
            return
        body = self._body
        if body is None:
            body = request.take()
            self._received = len(body)
            if self._received > self._settings.payload_bytes:
                connection.close()
                self._oversized()
                return
            if self._placement is not None or self._route.beside:
                self._keep(body)
            if self._tap is not None:
                self._tap.request_data(body, complete=request.complete)
        complete = request.complete
        length = len(body) if complete else request.head.length
        if self._session is None or self._session.session is None:
            head = REQUEST_HEADS[request.head, self._path, target.pool.address, length]
        else:
            name = self._session.session.id
            head = session_request_head(request.head, self._path, target.pool.address, length, name)
        self._upstream = connection
        self._sent_ns = now = monotonic_ns()
        self._await_instance(now)
        self._all_sent = complete
        connection.send(head, body, self, complete=complete, chunked=length < 0)
        if not complete:
            self._await_request_body(connection)
            request.receive(self._pump)

    def _pump(self) -> None:
        """Pass on what has come of the body, unless the instance is slow to take it."""
        upstream, request = self._upstream, self._request
        if upstream is None or upstream.write_paused or self._all_sent:
            return
        complete = request.complete
        data = request.take()
        self._received += len(data)
        if self._received > self._settings.payload_bytes:
            upstream.give_up()
            self._upstream = None
            self._oversized()
            return
        if self._placement is not None or self._route.beside:
            self._keep(data)
        if self._tap is not None:
            self._tap.request_data(data, complete=complete)
        self._all_sent = complete
        upstream.write(data, complete=complete)
        if complete:
            self._await_instance(monotonic_ns())
        else:
            self._await_request_body(upstream)

    def _keep(self, data: bytes) -> None:
        """Keep a small body, as the instance may not have the model, or another fleet have to answer in its place."""
        if self._received > self._settings.kept_bytes:
            return
        self._kept.append(data)
        if self._request.complete:
            self._body, self._kept = b"".join(self._kept), []

    def request_writable(self) -> None:
        """The instance takes more of the request."""
        self._pump()

    def _oversized(self) -> None:
        error = too_large(self._received, self._settings.payload_bytes)
        if self._request.withdraw():
            self._fail(error)
        else:
            self._break("StreamBroken", error.message)

    # what is waited for

    def _await_instance(self, now: int) -> None:
        """From now on the instance has its time."""
        settings = self._settings
        self.deadline_ns = now + (settings.stream_timeout_ns if self._streamed else settings.timeout_ns)

    def _await_request_body(self, upstream: UpstreamConnection) -> None:
        """Not all of the request has been sent: it is the client that takes time, or an instance that does not read."""
        if upstream.write_paused:
            self._await_instance(monotonic_ns())
        else:
            self.deadline_ns = 0

    # from the instance

    def response_whole(self, head: ResponseHead, data: bytes) -> None:
        """The whole response is there."""
        if self._streamed or not 200 <= head.status < 300:
            self.response_begun(head)
            self.response_data(data)
            self.response_ended()
            return
        reply = None
        self._upstream = None
        if self._session is not None:
            heard = self._in_session(head)
            if heard is None:
                return
            reply = session_reply_head(heard, self._variant.spec.name, chunked=False)
        if self._tap is not None:
            self._tap.response_begun(head)
            self._tap.response_data(data)
        self._finish(200, model_error=False)
        reply = reply or REPLY_HEADS[head, self._variant.spec.name, False]
        self._request.reply(reply + request_id_header(), data)

    def response_begun(self, head: ResponseHead) -> None:
        """The head of the response is there."""
        self._response = head
        request = self._request
        if not 200 <= head.status < 300:
            self._text = bytearray()
            return
        if self._tap is not None:
            self._tap.response_begun(head)
        if self._session is not None:
            heard = self._in_session(head)
            if heard is None:
                return
            head = heard
        name = self._variant.spec.name
        framed = self._streamed or head.length < 0
        self._chunked = framed and request.head.chunked
        if framed and not self._chunked:
            request.last()  # its end is the connection's (HTTP/1.0)
        if self._streamed:
            text = stream_head(head, name, chunked=self._chunked, in_session=self._session is not None)
        elif self._session is not None:
            text = session_reply_head(head, name, chunked=self._chunked)
        else:
            text = REPLY_HEADS[head, name, self._chunked]
        request.on_writable = self._writable
        request.begin(text + request_id_header())

    def _in_session(self, head: ResponseHead) -> ResponseHead | None:
        """The head of a response as whoever has the session gets it; None if that cannot be, which is answered."""
        use, target = self._session, self._target
        assert use is not None
        assert target is not None
        try:
            return use.response_of(head, target)
        except SessionError as error:
            if self._upstream is not None:
                self._upstream.give_up()
                self._upstream = None
            reason = f"it has opened a session in a way that makes no sense: {error}"
            self._fail(no_answer(self._route, self._container_name, reason), model=True)
            return None

    def response_data(self, data: bytes) -> None:
        """Some of the response's body."""
        if self._text is not None:
            self._text += data[: _TEXT_BYTES - len(self._text)]
            return
        if self._tap is not None:
            self._tap.response_data(data)
        if self._streamed:
            data = payload_part(data)
        request = self._request
        request.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if not request.is_writable and self._upstream is not None and not self._left_ns:
            self._upstream.pause()
            if self.deadline_ns:  # the time that the client takes is not the instance's
                self._left_ns = max(self.deadline_ns - monotonic_ns(), 1)
                self.deadline_ns = 0

    def _writable(self) -> None:
        if self._left_ns:
            self.deadline_ns, self._left_ns = monotonic_ns() + self._left_ns, 0
        if self._upstream is not None:
            self._upstream.resume()

    def response_ended(self) -> None:
        """The response is complete."""
        self._upstream = None
        response = self._response
        assert response is not None
        if self._text is None:
            if self._chunked:
                self._request.write(b"0\r\n\r\n")
            self._finish(200, model_error=False)
            self._request.end()
            return
        if response.status in _MISSED and self._retry(response.status):
            return
        self._fail_as_answered(response.status)

    def _fail_as_answered(self, status: int) -> None:
        """Answer with the error that the instance has answered with."""
        text = (self._text or b"").decode(errors="replace")
        failure = None if self._response is None else self._response.headers.get(FAILURE)
        if failure is not None and self._variant.spec.further:
            self._fail(no_answer(self._route, self._container_name, failure), model=True)
        else:
            self._fail(model_error(self._route, self._container_name, status, text), model=True)

    @property
    def _container_name(self) -> str:
        return container_name(self._variant, self._request.head, self._response)

    def response_failed(self, reason: str) -> None:
        """There is no response, or no more of it."""
        self._upstream = None
        if self._done:
            return
        if self._response is None:
            if self._target is not None and self._variant.residency is None:
                self._target.refuse()  # others hold what it holds
            if self._go_elsewhere():
                return
        if self._request.withdraw():
            self._fail(no_answer(self._route, self._container_name, reason), model=True)
        else:
            self._break("StreamBroken", reason)

    def _retry(self, status: int) -> bool:
        """Place a request once more that has not run; False if that is of no use, or its body is gone."""
        placement = self._placement
        if placement is None or not placement.failed(status):
            return False
        is_gone = self._body is None and self._received
        if is_gone or self._placements >= self._settings.placements:
            return False
        self._leave()
        self.deadline_ns = 0
        self._place(self._request.head.headers[TARGET_MODEL])
        return True

    def _go_elsewhere(self) -> bool:
        """While an update is under way: have another fleet answer what an instance of this one has not, once."""
        is_bound = self._session is not None  # the instance knows its session, and no other one does
        if not self._route.beside or self._elsewhere or is_bound or (self._body is None and self._received):
            return False
        other = able_elsewhere(self._route, self._variant, self._request.head.headers.get(TARGET_VARIANT))
        if other is None or (other.residency is None) is not (self._variant.residency is None):
            return False
        self._elsewhere = True
        self._leave()
        self._variant = other
        self.deadline_ns = 0
        if other.residency is None:
            self._send_to(choose_target(other), again=True)
        else:
            self._place(self._request.head.headers[TARGET_MODEL])
        return True

    # the end

    def expire(self) -> None:
        """The instance has taken too long."""
        if self._done:
            return
        if self._upstream is not None:
            self._upstream.give_up()
            self._upstream = None
        seconds = self._settings.stream_timeout_s if self._streamed else self._settings.timeout_s
        if self._request.withdraw():
            self._fail(timed_out(self._route, self._container_name, seconds), model=True)
        else:
            self._break("ModelInvocationTimeExceeded", f"it took more than {seconds:g} seconds")

    def _break(self, code: str, reason: str) -> None:
        """End a response that has begun and cannot be completed."""
        request = self._request
        self._finish(424, model_error=True, counted=_NO_ANSWER)
        if not self._streamed:
            request.abort()
            return
        frame = stream_error(f"The response stream broke: {reason}", code)
        request.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(frame), frame) if self._chunked else frame)
        request.end()

    def refuse(self, error: ApiError) -> None:
        """Answer a request that could not be sent on its way, and count it."""
        self._fail(error)

    def _fail(self, error: ApiError, *, model: bool = False) -> None:
        """Answer with an error; `model` if it is the instance's."""
        original = error.fields.get("OriginalStatusCode")
        counted = original if isinstance(original, int) and original else _NO_ANSWER
        self._finish(error.status, model_error=model, counted=counted if model else 0)
        answer_error(self._request, error)

    def _disconnected(self) -> None:
        """The client has gone: nobody wants the response any more."""
        if self._upstream is not None:
            self._upstream.give_up()
            self._upstream = None
        elif self._variant.residency is not None and self._target is None:
            self._variant.residency.cancel(self._placed)
        self._finish(_GONE, model_error=False)

    def _leave(self) -> None:
        """The instance is done with the request."""
        if self._target is not None:
            self._target.answered()
            self._target = None
        if self._placement is not None:
            self._placement.release()
            self._placement = None

    def _finish(self, status: int, *, model_error: bool, counted: int = 0) -> None:
        """It is over: `status` is what the client is told, and `counted` what the metrics are, if that is another."""
        if self._done:
            return
        self._done = True
        now = monotonic_ns()
        model_ns = now - self._sent_ns if self._sent_ns else 0
        self._leave()
        overhead_ns = now - self._began_ns - model_ns
        self._variant.meter.ended(counted or status, model_ns, overhead_ns, model_error=model_error)
        if self._tap is not None:
            self._tap.ended(status, model_ns)
        self._on_done(self)


def too_large(size: int, limit: int) -> ApiError:
    """The payload is larger than it may be."""
    message = f"HTTP content length exceeded {limit} bytes: the payload has {size} bytes or more"
    return ApiError("RequestEntityTooLargeException", message, 413)
