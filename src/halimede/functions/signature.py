"""What a function takes and gives as a model, read from its annotations."""

import collections.abc
import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final, Union, get_args, get_origin

import numpy as np

from halimede.core.datatypes import ALL, BF16, BOOL, BYTES, FP64, INT64, Datatype
from halimede.functions.callables import code_of, is_object, is_servable, qualified_name
from halimede.functions.declaration import DeclarationError, ModelOptions, Tensor

_SCALARS: Final[Mapping[Any, Datatype]] = {float: FP64, int: INT64, bool: BOOL, str: BYTES, bytes: BYTES}
_STREAMS: Final = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
_DATATYPES: Final = {each.name: each for each in ALL if each is not BF16}  # numpy has no BF16
_EXAMPLES: Final = (
    "for instance float, str, list[float], npt.NDArray[np.float32] or "
    'Annotated[np.ndarray, Tensor("FP32", [-1, 4])]'
)


class Form(Enum):
    """What the function sees of a tensor."""

    ARRAY = "array"
    LIST = "list"
    SCALAR = "scalar"


class Fields(Enum):
    """How the function gives several outputs."""

    ONE = "one"
    """It gives the value of the only output."""

    ITEMS = "items"
    """By position: a tuple, or a NamedTuple."""

    KEYS = "keys"
    """By name: a TypedDict."""

    ATTRIBUTES = "attributes"
    """By name: a dataclass."""


@dataclass(frozen=True, slots=True)
class Value:
    """One input or output.

    Attributes:
        name: its name.
        datatype: what an element is.
        shape: the shape that the function sees, -1 for a size that may vary; () for a scalar.
        form: what the function sees.
        text: BYTES elements are `str` in the function.
        optional: a request may leave it out.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    form: Form
    text: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """What a function takes and gives.

    Attributes:
        inputs: its parameters.
        outputs: what it gives.
        fields: how it gives several outputs.
        is_class: it is a class: each instance of the model makes an object, and calls that.
        streams: it is a generator: any number of responses answer a request.
        asynchronous: it is a coroutine function or an asynchronous generator.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    fields: Fields
    is_class: bool
    streams: bool
    asynchronous: bool


def read_signature(target: Any, options: ModelOptions) -> FunctionSignature:
    """The signature of a function or method, or of a class or an object with `__call__`.

    Raises:
        DeclarationError: an annotation is missing, or is none that can be served.
    """
    is_class = inspect.isclass(target)
    name = qualified_name(target)
    if is_class and "__call__" not in dir_of(target):
        raise DeclarationError(f"class '{name}' has no method __call__, which would answer requests")
    if not is_servable(target):
        raise DeclarationError(
            f"{target!r} is not written in Python, so that it has no annotations; serve a function that calls it"
        )
    by_call = is_class or is_object(target)
    function: Any = target.__call__ if by_call else target
    where = f"'{name}.__call__'" if by_call else f"'{name}'"
    try:
        hints = _hints(function if by_call else code_of(target))
    except Exception as error:  # of names in annotations, which may be anything
        raise DeclarationError(f"the annotations of {where} cannot be read: {error}") from None
    parameters = list(inspect.signature(function).parameters.values())[1 if is_class else 0 :]
    streams = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if streams and options.batch:
        raise DeclarationError(
            f"{where} streams its answers, which a function with batch={options.batch} cannot; leave batch out"
        )
    inputs = tuple(_input(each, hints, where, options) for each in parameters)
    if not inputs:
        raise DeclarationError(f"{where} takes nothing; a model has at least one input")
    fields, outputs = _outputs(hints, where, options, streams)
    return FunctionSignature(
        inputs,
        outputs,
        fields,
        is_class,
        streams,
        inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function),
    )


def _hints(target: Any) -> dict[str, Any]:
    """The annotations of a function or a class, by name."""
    return {
        name: _spelt_out(each) for name, each in typing.get_type_hints(target, include_extras=True).items()
    }


def _spelt_out(annotation: Any) -> Any:
    """What the annotation stands for, if a `type` statement named it, as numpy does NDArray from Python 3.12 on."""
    while True:
        alias = get_origin(annotation) or annotation
        if not hasattr(alias, "__value__"):
            return annotation
        arguments = get_args(annotation)
        annotation = alias.__value__[arguments] if arguments else alias.__value__


def dir_of(target: type) -> set[str]:
    """The names that a class and its bases define, but for `object`."""
    return {name for base in target.__mro__ if base is not object for name in vars(base)}


def _input(
    parameter: inspect.Parameter, hints: Mapping[str, Any], where: str, options: ModelOptions
) -> Value:
    what = f"parameter '{parameter.name}' of {where}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise DeclarationError(f"{what} stands for any number of arguments; a model's inputs have names")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise DeclarationError(f"{what} has no name for callers, as '/' follows it; remove that")
    if parameter.name not in hints:
        raise DeclarationError(f"{what} has no annotation; write {_EXAMPLES}")
    optional = parameter.default is not parameter.empty
    annotation = hints[parameter.name]
    if optional:
        annotation = _without_none(annotation)
        if options.batch:
            raise DeclarationError(
                f"{what} has a default, which requests that share a batch cannot; remove the default or "
                f"batch={options.batch}"
            )
    return _value(parameter.name, annotation, what, options, optional)


def _outputs(
    hints: Mapping[str, Any], where: str, options: ModelOptions, streams: bool
) -> tuple[Fields, tuple[Value, ...]]:
    what = f"the result of {where}"
    annotation = hints.get("return")
    if annotation is None or annotation is type(None):
        raise DeclarationError(f"{what} has no annotation; write -> and {_EXAMPLES}")
    if streams:
        if get_origin(annotation) not in _STREAMS:
            raise DeclarationError(
                f"{where} is a generator; annotate its result as Iterator[...] or AsyncIterator[...] of what it yields"
            )
        annotation = _spelt_out(get_args(annotation)[0])
    elif get_origin(annotation) in _STREAMS:
        raise DeclarationError(f"{what} is annotated as an iterator, but the function does not `yield`")
    fields, named = _named_outputs(annotation)
    return fields, tuple(
        _value(name, each, f"output '{name}' of {where}" if len(named) > 1 else what, options)
        for name, each in named.items()
    )


def _named_outputs(annotation: Any) -> tuple[Fields, dict[str, Any]]:
    """Output → annotation."""
    if get_origin(annotation) is tuple and ... not in get_args(annotation):
        return Fields.ITEMS, {f"output_{place}": each for place, each in enumerate(get_args(annotation))}
    if inspect.isclass(annotation):
        if typing.is_typeddict(annotation):
            return Fields.KEYS, _hints(annotation)
        if issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
            return Fields.ITEMS, _hints(annotation)
        if dataclasses.is_dataclass(annotation):
            hints = _hints(annotation)
            return Fields.ATTRIBUTES, {each.name: hints[each.name] for each in dataclasses.fields(annotation)}
    return Fields.ONE, {"output": annotation}


def _without_none(annotation: Any) -> Any:
    """`X` of `X | None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        others = [each for each in get_args(annotation) if each is not type(None)]
        if len(others) == 1:
            return _spelt_out(others[0])
    return annotation


def _value(name: str, annotation: Any, what: str, options: ModelOptions, optional: bool = False) -> Value:
    datatype, shape, form, text = _read(annotation, what)
    if not options.batch:
        return Value(name, datatype, shape, form, text, optional)
    if form is Form.SCALAR:
        raise DeclarationError(
            f"{what} is a single value, and with batch={options.batch} the function gets a batch of them: "
            f"write list[{getattr(annotation, '__name__', annotation)}] or an array"
        )
    if shape[0] != -1:
        raise DeclarationError(
            f"{what} has the shape {list(shape)}, and with batch={options.batch} its first size is that of the batch: "
            "write -1 there"
        )
    return Value(name, datatype, shape, form, text, optional)


def _read(annotation: Any, what: str) -> tuple[Datatype, tuple[int, ...], Form, bool]:
    """Datatype, shape, form, and whether BYTES are text."""
    annotation = _spelt_out(annotation)
    if get_origin(annotation) is Annotated:
        base, *extras = get_args(annotation)
        base = _spelt_out(base)
        tensors = [each for each in extras if isinstance(each, Tensor)]
        if tensors:
            form = Form.LIST if base is list or get_origin(base) is list else Form.ARRAY
            text = form is Form.LIST and _innermost(base) is str
            return _datatype(tensors[0].datatype, what), _shape(tensors[0].shape, what), form, text
        return _read(base, what)
    if annotation in _SCALARS:
        return _SCALARS[annotation], (), Form.SCALAR, annotation is str
    origin = get_origin(annotation)
    if origin is list:
        inner, depth = annotation, 0
        while get_origin(inner) is list:
            inner, depth = _spelt_out(*get_args(inner)), depth + 1
        if inner in _SCALARS:
            return _SCALARS[inner], (-1,) * depth, Form.LIST, inner is str
    if origin is np.ndarray:
        shape, dtype = get_args(annotation)
        kinds = get_args(dtype)
        if kinds and inspect.isclass(kinds[0]):
            sizes = get_args(shape) if get_origin(shape) is tuple else ()
            rank = len(sizes) if sizes and ... not in sizes else 1
            return _datatype(kinds[0], what), (-1,) * rank, Form.ARRAY, False
    if inspect.isclass(annotation) and issubclass(annotation, np.generic):
        return _datatype(annotation, what), (), Form.SCALAR, False
    shown = annotation.__name__ if inspect.isclass(annotation) else annotation
    if annotation is np.ndarray:
        raise DeclarationError(
            f"{what} is an array of which neither datatype nor shape are known; write "
            f'Annotated[np.ndarray, Tensor("FP32", [-1, 4])], or npt.NDArray[np.float32] for a vector'
        )
    raise DeclarationError(f"{what} is annotated as {shown}, which is no tensor; write {_EXAMPLES}")


def _innermost(annotation: Any) -> Any:
    while get_origin(annotation) is list:
        annotation = _spelt_out(*get_args(annotation))
    return annotation


def _datatype(given: Any, what: str) -> Datatype:
    if isinstance(given, str) and given in _DATATYPES:
        return _DATATYPES[given]
    try:
        dtype = np.dtype(given)
    except TypeError:
        names = ", ".join(_DATATYPES)
        raise DeclarationError(
            f"{what}: {given!r} is no datatype; it must be one of {names}, or a numpy type"
        ) from None
    if dtype.kind in "SUO":
        return BYTES
    for each in _DATATYPES.values():
        if each.numpy == dtype:
            return each
    raise DeclarationError(
        f"{what}: arrays of {dtype} cannot be sent; the datatypes are {', '.join(_DATATYPES)}"
    )


def _shape(given: Any, what: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in given)
    except (TypeError, ValueError):
        shape = ()
    if not shape or any(size < -1 or size == 0 for size in shape):
        raise DeclarationError(
            f"{what}: the shape must be a list of sizes, -1 for one that may vary, such as [-1, 4]; got {given!r}"
        )
    return shape
