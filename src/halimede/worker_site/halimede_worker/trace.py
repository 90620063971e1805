"""The trace of a request."""

from typing import Optional


class InferenceTrace:
    """What a request's trace is called, to be given to the requests that come of it."""

    __module__ = "c_python_backend_utils"

    __slots__ = ()

    def get_context(self) -> Optional[str]:
        """The context of the trace, or None: requests are not traced."""
        return None
