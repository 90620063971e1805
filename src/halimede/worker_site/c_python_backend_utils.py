"""The classes of Triton's native module of this name, which models import for what `pb_utils` leaves out."""

import os as _os
from concurrent.futures import Future as _Future
from typing import Any as _Any

from halimede_worker.calls.control import is_model_ready, load_model, unload_model
from halimede_worker.calls.iterators import ResponseIterator
from halimede_worker.calls.logger import Logger
from halimede_worker.calls.metrics import Metric, MetricFamily, MetricKind
from halimede_worker.calls.preferred_memory import MemoryType, PreferredMemory
from halimede_worker.errors import TritonError, TritonModelException
from halimede_worker.errors import describe as _describe
from halimede_worker.requests import InferenceRequest
from halimede_worker.responses import InferenceResponse
from halimede_worker.runtime import runtime as _runtime
from halimede_worker.senders import InferenceResponseSender
from halimede_worker.tensors.tensors import Tensor
from halimede_worker.trace import InferenceTrace

__all__ = [
    "COUNTER",
    "GAUGE",
    "HISTOGRAM",
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "MetricKind",
    "PreferredMemory",
    "ResponseIterator",
    "SharedMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "async_event_future_done_callback",
    "is_model_ready",
    "load_model",
    "shared_memory",
    "unload_model",
]

COUNTER = MetricKind.COUNTER
GAUGE = MetricKind.GAUGE
HISTOGRAM = MetricKind.HISTOGRAM

TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


class SharedMemory:
    """The memory that the model shares with the server."""

    __slots__ = ()

    def free_memory(self) -> int:
        """How many bytes more could be shared: what the machine has, less what the server was lent.

        Two calls with requests between them that have left nothing behind give the same.
        """
        machine = _os.sysconf("SC_PHYS_PAGES") * _os.sysconf("SC_PAGE_SIZE")
        return machine - _runtime.memory.lent_bytes


shared_memory = SharedMemory()


def async_event_future_done_callback(py_future: "_Future[_Any]") -> None:
    """Log why a coroutine failed, if it did."""
    if py_future.cancelled():
        return
    error = py_future.exception()
    if error is not None:
        Logger.log_error(_describe(error))
