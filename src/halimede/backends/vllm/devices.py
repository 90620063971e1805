"""On which GPUs vLLM's engine of an instance runs."""

import os
from typing import Any, Final

from halimede.backends.base import InstanceSpec
from halimede.backends.parameters import parse_integer, text_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError
from halimede.core.gpus import VISIBLE

DEVICES: Final = "GPU_DEVICE_IDS"
"""The parameter for KIND_MODEL, as in Triton's vLLM backend: numbers of GPUs, separated by commas."""


def choose_devices(config: ModelConfig, spec: InstanceSpec, arguments: dict[str, Any]) -> None:
    """Let this process, which is the instance's own, see only the GPUs of the instance.

    Raises:
        InvalidArgumentError: vLLM is to use more GPUs than the instance has, or `GPU_DEVICE_IDS` names none.
    """
    wanted = int(arguments.get("tensor_parallel_size", 1)) * int(arguments.get("pipeline_parallel_size", 1))
    listed = text_parameter(config, DEVICES)
    if spec.kind == "KIND_GPU":
        if wanted > 1:
            msg = (
                f"model '{config.name}': vLLM is to use {wanted} GPUs, but an instance of KIND_GPU has one; use "
                f"instance_group {{ kind: KIND_MODEL }}"
            )
            raise InvalidArgumentError(msg)
        numbers = [spec.device]
    elif spec.kind == "KIND_MODEL" and listed:
        where = f"model '{config.name}': parameter '{DEVICES}'"
        numbers = [parse_integer(where, each.strip()) for each in listed.split(",")]
        if len(set(numbers)) < len(numbers):
            raise InvalidArgumentError(f"{where} names a GPU twice: {listed}")
        if wanted > 1 and wanted != len(numbers):
            raise InvalidArgumentError(f"{where} names {len(numbers)} GPUs, but vLLM is to use {wanted}")
    else:
        return
    visible = os.environ.get(VISIBLE)
    entries = visible.split(",") if visible else []
    names = [entries[number] if number < len(entries) else str(number) for number in numbers]
    os.environ[VISIBLE] = ",".join(names)
