"""Traces as the process is told of them that writes or sends them: plain tuples, which take least to pickle."""

from typing import Any

from halimede.core.traces import AttributeValue, Trace, TracedTensor

Events = list[Any]
"""Names and times in nanoseconds on the server's clock, in turn."""

SentSpan = tuple[int, int, int, str, str, dict[str, AttributeValue]]
"""
* trace id, 16 bytes as an integer
* span id, 8 bytes as an integer: of the request within the server
* as well, of the span that caused it; 0 for none
* the header `tracestate`, "" for none
* why the request failed, "" if it did not
* what else is known of it
"""

SentTrace = tuple[int, int, str, int, str, Events | None, list[TracedTensor], SentSpan | None]
"""
* number, which identifies the trace within the server
* the number of the trace that caused it, 0 for none
* model and version
* the client's identifier of the request, "" for none
* what happened; None if times are not wanted
* contents of tensors
* its place among the spans of other programs; None if those are not traced
"""


def sent_trace(trace: Trace) -> SentTrace:
    """All that is told of a trace."""
    parent, context = trace.parent, trace.context
    span: SentSpan | None = None
    if context is not None:
        above = trace.remote if parent is None else parent.context
        above_id = 0 if above is None else above.span_id
        span = (context.trace_id, context.span_id, above_id, context.state, trace.error, trace.attributes)
    return (
        trace.number,
        0 if parent is None else parent.number,
        trace.model_name,
        trace.model_version,
        trace.request_id,
        trace.events if trace.timestamps else None,
        trace.contents,
        span,
    )
