"""What Python models import, usually as `pb_utils`: all that Triton's module of this name holds."""

import json
import struct

import numpy as np

from halimede_worker.calls.control import is_model_ready, load_model, unload_model
from halimede_worker.calls.logger import Logger
from halimede_worker.calls.metrics import MetricFamily
from halimede_worker.calls.preferred_memory import MemoryType as _MemoryType
from halimede_worker.calls.preferred_memory import PreferredMemory
from halimede_worker.errors import TritonError, TritonModelException
from halimede_worker.helpers import (
    get_input_config_by_name,
    get_input_tensor_by_name,
    get_output_config_by_name,
    get_output_tensor_by_name,
    using_decoupled_model_transaction_policy,
)
from halimede_worker.model_config import ModelConfig
from halimede_worker.requests import RELEASE_ALL as _RELEASE_ALL
from halimede_worker.requests import RELEASE_RESCHEDULE as _RELEASE_RESCHEDULE
from halimede_worker.requests import InferenceRequest
from halimede_worker.responses import InferenceResponse
from halimede_worker.runtime import runtime as _runtime
from halimede_worker.senders import FINAL as _FINAL
from halimede_worker.tensors.datatypes import (
    TRITON_STRING_TO_NUMPY,
    numpy_to_triton_type,
    triton_string_to_numpy,
    triton_to_numpy_type,
)
from halimede_worker.tensors.strings import deserialize_bytes_tensor, serialize_byte_tensor
from halimede_worker.tensors.tensors import Tensor

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "json",
    "load_model",
    "np",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "struct",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = _FINAL
TRITONSERVER_REQUEST_RELEASE_ALL = _RELEASE_ALL
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = _RELEASE_RESCHEDULE

TRITONSERVER_MEMORY_GPU = _MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = _MemoryType.TRITONSERVER_MEMORY_CPU


def get_model_dir() -> str:
    """The directory that holds the model's file: that of its version."""
    return _runtime.version_directory
