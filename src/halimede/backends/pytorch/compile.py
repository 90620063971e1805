"""The parameter `TORCH_COMPILE_OPTIONAL_PARAMETERS`: how `torch.compile` is to compile a module, as a JSON object.

Keys are those of Triton's PyTorch backend. Without the parameter nothing is compiled.
"""

import json
from typing import Any

from halimede.backends.parameters import text_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError

PARAMETER = "TORCH_COMPILE_OPTIONAL_PARAMETERS"

Compiling = dict[str, Any]
"""Keyword arguments of `torch.compile`."""

_TYPES: dict[str, type] = {
    "fullgraph": bool,
    "dynamic": bool,
    "backend": str,
    "mode": str,
    "options": dict,
    "disable": bool,
}
_WORDS = {bool: "true or false", str: "a string", dict: "an object"}


def compiling(config: ModelConfig) -> Compiling | None:
    """How to compile the model's module, None if it is not to be compiled.

    Raises:
        InvalidArgumentError: the parameter is no JSON object, or `torch.compile` has no such argument.
    """
    text = text_parameter(config, PARAMETER)
    if text is None:
        return None
    where = f"model '{config.name}': parameter '{PARAMETER}'"
    try:
        arguments = json.loads(text)
    except ValueError as error:
        msg = f'{where} must be a JSON object such as {{"mode": "default"}}, got \'{text}\' ({error})'
        raise InvalidArgumentError(msg) from error
    if not isinstance(arguments, dict):
        raise InvalidArgumentError(f"{where} must be a JSON object, got '{text}'")
    for key, value in arguments.items():
        if key not in _TYPES:
            raise InvalidArgumentError(f"{where} has no key '{key}'; its keys are {', '.join(_TYPES)}")
        if not isinstance(value, _TYPES[key]):
            msg = f"{where}: '{key}' must be {_WORDS[_TYPES[key]]}, got {json.dumps(value)}"
            raise InvalidArgumentError(msg)
    return None if arguments.get("disable") else arguments
