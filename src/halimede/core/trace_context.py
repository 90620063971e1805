"""The headers by which programs tell each other of the trace that a request belongs to (W3C Trace Context)."""

import re
from typing import Final

from halimede.core.traces import SpanContext

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_FIELDS: Final = re.compile(
    r"([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_STATE: Final = re.compile(r"[\x20-\x7e]{0,512}")
"""A `tracestate` that is handed on; of a longer one, members may be dropped, and so all are."""
_SAMPLED: Final = 1


def parse_context(traceparent: object, tracestate: object = None) -> SpanContext | None:
    """The span that these headers name; None if there is none, or they are malformed.

    Args:
        traceparent: the header's value, None for none.
        tracestate: as well; one that cannot be handed on is left out.
    """
    found = _FIELDS.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more):
        return None
    state = tracestate if isinstance(tracestate, str) and _STATE.fullmatch(tracestate) else ""
    return SpanContext(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED), state)


def traceparent_of(context: SpanContext) -> str:
    """The header `traceparent` that names this span."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.sampled):02x}"
