"""One invocation that is captured, from its first byte until it is on disk."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from halimede.hosting.budget import Budget
from halimede.hosting.capture.spool import CapturePlace
from halimede.hosting.routing.heads import TARGET_MODEL
from halimede.hosting.specs import DataCapture
from halimede.http1.head import Head
from halimede.http1.upstream import ResponseHead

_INFERENCE_ID = "x-amzn-sagemaker-inference-id"
_CUSTOM_ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"


class CaptureMeter(Protocol):
    """Counts what is captured of a variant. Called on the event loop."""

    def captured(self, count: int) -> None:
        """So many records are on disk."""

    def capture_too_large(self) -> None:
        """A record was left out because of its size."""

    def capture_dropped(self, count: int) -> None:
        """So many records were lost, as there was no room for them in memory or on the disk."""


class Captured:
    """An invocation that is captured (`Tap`). It lives on the event loop until `put` has it.

    Attributes:
        place: where its record goes.
        meter: counts what becomes of it.
        asked, answered: the bodies as they came; empty for what is not wanted.
        size: bytes of both.
    """

    __slots__ = (
        "_answers",
        "_asks",
        "_head",
        "_is_too_large",
        "_limit",
        "_lost",
        "_memory",
        "_put",
        "_response",
        "_spec",
        "_time",
        "answered",
        "asked",
        "meter",
        "place",
        "size",
    )

    def __init__(
        self,
        place: CapturePlace,
        spec: DataCapture,
        meter: CaptureMeter,
        head: Head,
        memory: Budget,
        limit: int,
        put: Callable[["Captured"], None],
    ) -> None:
        """An invocation that begins.

        Args:
            place: where its record goes.
            spec: what is wanted of it.
            meter: counts what becomes of it.
            head: the client's.
            memory: of all that is captured.
            limit: so many bytes it may have.
            put: takes it when it has been answered well.
        """
        self.place = place
        self.meter = meter
        self.asked: list[bytes] = []
        self.answered: list[bytes] = []
        self.size = 0
        self._spec = spec
        self._asks = spec.inputs
        self._answers = spec.outputs
        self._head = head
        self._memory = memory
        self._limit = limit
        self._put = put
        self._response: ResponseHead | None = None
        self._lost = False
        self._is_too_large = False
        self._time = 0.0

    # Tap

    def request_data(self, data: bytes, *, complete: bool) -> None:
        """Keep it, if requests are wanted."""
        if self._asks:
            self._keep(self.asked, data)

    def response_begun(self, head: ResponseHead) -> None:
        """The instance has done what it was asked."""
        self._response = head

    def response_data(self, data: bytes) -> None:
        """Keep it, if responses are wanted."""
        if self._answers:
            self._keep(self.answered, data)

    def ended(self, status: int, model_ns: int) -> None:
        """Hand it on if the client has the answer; what failed is not captured."""
        if self._response is None or not 200 <= status < 300:
            self.forget()
        elif not self._lost:
            self._time = time.time()
            self._put(self)
        elif self._is_too_large:
            self.meter.capture_too_large()
        else:
            self.meter.capture_dropped(1)

    def _keep(self, parts: list[bytes], data: bytes) -> None:
        if self._lost or not data:
            return
        size = len(data)
        self._is_too_large = self.size + size > self._limit
        if self._is_too_large or not self._memory.take(size):
            self._lost = True
            self.forget()
            return
        parts.append(data)
        self.size += size

    def forget(self) -> None:
        """Give back what it takes of the memory."""
        self._memory.give_back(self.size)
        self.size = 0
        self.asked, self.answered = [], []

    def about(self, event_id: str) -> dict[str, Any]:
        """What a spool file has of it besides the bodies. May be called on any thread."""
        response, headers = self._response, self._head.headers
        assert response is not None
        about: dict[str, Any] = {"eventId": event_id, "time": self._time}
        if self._asks:
            kind = headers.get("content-type") or headers.get("x-amzn-sagemaker-content-type", "")
            about["input"] = kind, self._spec.encoding(kind)
        if self._answers:
            kind = response.headers.get("content-type", "")
            about["output"] = kind, self._spec.encoding(kind)
        for name, header in (
            ("inferenceId", _INFERENCE_ID),
            ("customAttributes", _CUSTOM_ATTRIBUTES),
            ("targetModel", TARGET_MODEL),
        ):
            if header in headers:
                about[name] = headers[header]
        if self._spec.source:
            about["source"] = self._spec.source
        return about
