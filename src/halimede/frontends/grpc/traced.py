"""Tracing of requests over gRPC."""

from collections.abc import Callable
from typing import Final

from halimede.core.requests import InferRequest
from halimede.engine.tracing.recording import ProtocolNames, trace_client_request
from halimede.engine.tracing.tracing import Tracing
from halimede.frontends.grpc.transport.call import Call

NAMES: Final = ProtocolNames("GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END")
"""What the events of such a request are called."""


def trace_if_sampled(
    tracing: Tracing, call: Call, request: InferRequest, model_version: int, now: Callable[[], int]
) -> None:
    """Trace the request, which this version of its model is about to run for the call, if its turn has come."""
    trace = tracing.begin(request.model_name, model_version, call.metadata)
    if trace is not None:
        trace_client_request(request, trace, now, NAMES)
