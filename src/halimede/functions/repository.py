"""The model directory that stands for a function: a `config.pbtxt` and a `model.py` that calls it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

from google.protobuf import text_format

from halimede.config.model_config_pb2 import DataType, ModelConfig
from halimede.functions.callables import code_of, global_name, qualified_name
from halimede.functions.declaration import DeclarationError, ModelOptions, options_of
from halimede.functions.places import Place, place_of
from halimede.functions.signature import FunctionSignature, Value, read_signature

_MODEL: Final = '''"""Made by Halimede: calls {name}."""

import triton_python_backend_utils as triton

from halimede.functions.hosted import hosted
from halimede.functions.places import Place
{names}
TritonPythonModel = hosted(triton, {place!r})
'''


def write_function_model(repository: Path, name: str, target: Callable[..., Any]) -> Place:
    """Write the directory of a model, whose name is given, and say where its function is found.

    Raises:
        DeclarationError: the function cannot be served.
    """
    options = options_of(target)
    config = function_config(name, read_signature(target, options), options)
    version = repository / name / "1"
    version.mkdir(parents=True)
    place = place_of(target, options.isolation, version)
    (repository / name / "config.pbtxt").write_text(text_format.MessageToString(config))
    text = _MODEL.format(name=qualified_name(target), place=place, names=_name_lines(target, options))
    (version / "model.py").write_text(text)
    return place


def model_name(target: Callable[..., Any]) -> str:
    """The name of the model that a function becomes.

    Raises:
        DeclarationError: it has none.
    """
    found = global_name(target)
    name = (
        options_of(target).name or (qualified_name(target) if found is None else found[1]).rpartition(".")[2]
    )
    if name == "<lambda>":
        raise DeclarationError("a lambda has no name and no annotations; define a function with `def`")
    return name


def function_config(name: str, signature: FunctionSignature, options: ModelOptions) -> ModelConfig:
    """The configuration of the model that stands for a function."""
    config = ModelConfig(name=name, backend="python", max_batch_size=options.batch)
    for value in signature.inputs:
        _add_tensor(config.input.add(), value, options.batch)
        config.input[-1].optional = value.optional
    for value in signature.outputs:
        _add_tensor(config.output.add(), value, options.batch)
    config.instance_group.add(count=options.instances, kind="KIND_CPU")
    if options.batch:
        config.dynamic_batching.max_queue_delay_microseconds = options.delay_us
    if signature.streams:
        config.model_transaction_policy.decoupled = True
    parameters = {"isolation": options.isolation, **options.parameters}
    if signature.asynchronous and not signature.streams:
        parameters.setdefault("MAX_CONCURRENT_EXECUTIONS", str(options.concurrency))
    for key, text in parameters.items():
        config.parameters[key].string_value = str(text)
    return config


def _add_tensor(tensor: Any, value: Value, batch: int) -> None:
    tensor.name = value.name
    tensor.data_type = DataType.Value(value.datatype.config_name)
    shape = value.shape[1:] if batch else value.shape
    tensor.dims.extend(shape or (1,))
    if batch and not shape:
        tensor.reshape.SetInParent()  # the function sees a vector: one element for each row


def _name_lines(target: Callable[..., Any], options: ModelOptions) -> str:
    """What tells a server in whose process the function runs which names its code uses.

    By these it decides whether a call may run on its event loop, which must never wait.
    """
    if options.isolation != "none":
        return ""
    names = sorted(set(_names(target)))
    return f"\n\ndef _names_in_use() -> None:\n    {'; '.join(names)}\n\n" if names else ""


def _names(target: Any) -> Iterator[str]:
    """The names in the code of a function or class, and of the functions of the same module."""
    target = code_of(target)
    for each in (target, *_globals(target).values()):
        if isinstance(each, FunctionType):
            yield from _names_in(each.__code__)
        elif isinstance(each, type) and each.__module__ == target.__module__:
            for member in vars(each).values():
                if isinstance(member, FunctionType):
                    yield from _names_in(member.__code__)


def _globals(target: Any) -> dict[str, Any]:
    functions = [target] if isinstance(target, FunctionType) else list(vars(target).values())
    for each in functions:
        if isinstance(each, FunctionType):
            return {
                name: value
                for name, value in each.__globals__.items()
                if getattr(value, "__module__", None) == target.__module__
            }
    return {}


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
