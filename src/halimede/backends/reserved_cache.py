"""The memory that a configuration of OpenVINO GenAI reserves for keys and values. Nothing here imports a framework."""

from halimede.backends.parameters import integer_parameter
from halimede.backends.registry import backend_name
from halimede.config.model_config_pb2 import ModelConfig


def cache_bytes(config: ModelConfig) -> int:
    """Bytes that each instance reserves; 0 if the configuration alone does not say.

    Raises:
        InvalidArgumentError: the parameter has no such value.
    """
    if backend_name(config) != "openvino_genai":
        return 0
    return (integer_parameter(config, "cache_size", 1) or 0) << 30
