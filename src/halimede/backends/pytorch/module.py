"""A plain `torch.nn.Module`: a Python file that defines its class, and its weights beside it.

As in the Python runtime of Triton's PyTorch backend: the class is made without arguments, and the weights are in a
file of the same stem. Weights are read as tensors only, never as pickled objects.
"""

import importlib.util
import inspect
import logging
import sys
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from halimede.backends.file_looks import ZIP, note
from halimede.backends.pytorch.compile import Compiling
from halimede.backends.pytorch.ports import Place, Port, Side, listed_names
from halimede.backends.pytorch.program import Program, Value
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.datatypes import BYTES, Datatype
from halimede.core.errors import InvalidArgumentError, UnsupportedError

logger = logging.getLogger("halimede")

_MODULE_NAME = "halimede_model"


class Module(Program):
    """A module of Python code. What it gives is known only when it has run.

    Args:
        path: the file of code.
        device: where its weights and inputs go; None leaves them where the module puts them.
        config: the model's, whose outputs say what is taken from a result.
        compiling: how to compile it, None for not at all.

    Raises:
        InvalidArgumentError: the file defines no module, its code fails, or the weights do not fit it.
        UnsupportedError: the weights need a library that is not installed.
    """

    may_block = True

    def __init__(
        self, path: Path, device: str | None, config: ModelConfig, compiling: Compiling | None = None
    ) -> None:
        module = _made(path)
        _load_weights(module, path, device)
        if device is not None:
            module = module.to(device)
        module.eval()
        self.home = device or str(next((each.device for each in module.parameters()), "cpu"))
        self.inputs = _inputs(module)
        # a sequence goes by position, a dictionary by key; only a run tells which it is
        self.outputs = Side("output", "what forward returns", keyed=True, untyped=True)
        names = listed_names(config, "output")
        self._positions = Side("output", self.outputs.text, counted=True).places(config, names)
        # code may write to anything
        self.writes = True
        self._module = module
        self._arguments = [port.name for port in self.inputs.ports]
        self._run: Callable[..., Any] = module if compiling is None else torch.compile(module, **compiling)

    def call(self, values: Mapping[Place, Value]) -> Mapping[str, Any]:
        """What `forward` gives, by the names of the configuration."""
        if self.inputs.keyed:
            result = self._run(dict(values))
        elif self.inputs.counted:
            result = self._run(*(values[place] for place in range(len(values))))
        else:
            names = self._arguments
            result = self._run(
                **{names[place]: value for place, value in values.items() if isinstance(place, int)}
            )
        if isinstance(result, Mapping):
            return result
        given: Sequence[Any] = result if isinstance(result, list | tuple) else (result,)
        if _is_strings(given) and isinstance(given, list):
            given = (given,)
        return {
            name: given[place]
            for name, place in self._positions.items()
            if isinstance(place, int) and place < len(given)
        }


def _made(path: Path) -> torch.nn.Module:
    """The module that the file defines.

    Raises:
        InvalidArgumentError: it defines none, or its code fails.
    """
    spec = importlib.util.spec_from_file_location(_MODULE_NAME, path)
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE_NAME] = code  # dataclasses and annotations look their module up
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # for other files of the version; the process is the model's own
    try:
        spec.loader.exec_module(code)
        return _class_of(code, path)()
    except InvalidArgumentError:
        raise
    except Exception as error:
        raise InvalidArgumentError(f"{path.name} fails: {_where(error, path)}") from error


def _class_of(code: ModuleType, path: Path) -> type[torch.nn.Module]:
    """The class of modules that the code defines; of several, the first by name, as in Triton."""
    classes = [
        each
        for each in vars(code).values()
        if isinstance(each, type) and issubclass(each, torch.nn.Module) and each is not torch.nn.Module
    ]
    own = [each for each in classes if each.__module__ == _MODULE_NAME] or classes
    if not own:
        msg = f"{path.name} defines no class that extends torch.nn.Module; it must define one"
        raise InvalidArgumentError(msg)
    first, *others = sorted({each.__name__: each for each in own}.values(), key=lambda each: each.__name__)
    if others:
        names = ", ".join(each.__name__ for each in others)
        logger.info("%s: the model is %s, the first by name; not %s", path, first.__name__, names)
    return first


def _where(error: Exception, path: Path) -> str:
    """The error, and the last line of the file that led to it."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    place = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{place}"


def _load_weights(module: torch.nn.Module, path: Path, device: str | None) -> None:
    """Fill the module's parameters and buffers from the file beside its code, if there is one."""
    for weights in (path.with_suffix(".safetensors"), path.with_suffix(".pt")):
        if weights.is_file():
            break
    else:
        return
    state = _safetensors(weights) if weights.suffix == ".safetensors" else _state_dict(weights, device)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise InvalidArgumentError(f"{weights.name} does not fit {path.name}: {error}") from error


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        msg = f'{path.name} needs safetensors, which is not installed; install it with: pip install "halimede[pytorch]"'
        raise UnsupportedError(msg) from error
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InvalidArgumentError(f"{path.name} cannot be read: {error}{note(path)}") from error


def _state_dict(path: Path, device: str | None) -> dict[str, torch.Tensor]:
    save = f"save the weights with torch.save(module.state_dict(), '{path.name}'), or as safetensors"
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # PyTorch's errors have no common base
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        reason += note(path, usual=ZIP)
        msg = f"{path.name} is cut off, or holds more than tensors, which would run code: {reason}; {save}"
        raise InvalidArgumentError(msg) from error
    if not isinstance(state, dict):
        raise InvalidArgumentError(f"{path.name} holds no weights by name; {save}")
    return state


def _inputs(module: torch.nn.Module) -> Side:
    """What `forward` takes."""
    try:
        signature = inspect.signature(module.forward, eval_str=True)
    except NameError:  # an annotation that means something to type checkers only
        signature = inspect.signature(module.forward)
    parameters = list(signature.parameters.values())
    text = "(" + ", ".join(map(str, parameters)) + ")"
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return Side("input", text, counted=True, untyped=True)
    if len(parameters) == 1 and typing.get_origin(parameters[0].annotation) in (dict, Mapping):
        return Side("input", text, keyed=True, untyped=True)
    ports = [
        Port(each.name, _datatype(each), required=each.default is inspect.Parameter.empty)
        for each in parameters
        if each.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    ]
    return Side("input", text, tuple(ports), untyped=True)


def _datatype(parameter: inspect.Parameter) -> Datatype | None:
    """BYTES for a list of strings; other annotations do not say it."""
    return BYTES if parameter.annotation == list[str] else None


def _is_strings(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(each, str) for each in values)
