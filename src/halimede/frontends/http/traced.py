"""Tracing of requests over HTTP."""

from collections.abc import Callable
from typing import Final

from halimede.core.requests import InferRequest
from halimede.engine.tracing.recording import ProtocolNames, trace_client_request
from halimede.engine.tracing.tracing import Tracing
from halimede.frontends.http.transport.exchange import Exchange

NAMES: Final = ProtocolNames("HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END")
"""What the events of such a request are called."""


def trace_if_sampled(
    tracing: Tracing, exchange: Exchange, request: InferRequest, now: Callable[[], int]
) -> None:
    """Trace the request, which this version of its model is about to run for the exchange, if its turn has come."""
    trace = tracing.begin(request.model_name, request.model_version, exchange.headers)
    if trace is not None:
        trace_client_request(request, trace, now, NAMES, exchange.body_began_ns)
