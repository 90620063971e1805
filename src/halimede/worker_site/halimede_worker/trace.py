"""The trace of a request."""

from typing import Optional


class InferenceTrace:
    """The trace of a request, to be given to the requests that come of it."""

    __module__ = "c_python_backend_utils"

    __slots__ = ("_context", "_number")

    def __init__(self) -> None:
        self._number = 0  # by which the server knows it; 0 for a request that is not traced
        self._context: Optional[str] = None

    def get_context(self) -> Optional[str]:
        """The span of the request, to be handed on to other programs: the headers of W3C's trace context, as JSON.

        None if the request is not traced, or the server does not trace with OpenTelemetry.
        """
        return self._context
