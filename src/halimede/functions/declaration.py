"""What a function says of itself as a model: the decorator `model`, and `Tensor` in its annotations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, overload

from halimede.functions.callables import code_of

F = TypeVar("F", bound=Callable[..., Any])

DECLARED: Final = "__halimede_model__"
"""The attribute of a function or class that holds its `ModelOptions`."""

ISOLATIONS: Final = ("process", "none")


class DeclarationError(Exception):
    """A function cannot be served as it is; the text says why, and what would be right."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Datatype and shape of an array, for `Annotated[np.ndarray, Tensor("FP32", [-1, 4])]`.

    Attributes:
        datatype: a name of the protocol such as "FP32", "UINT8" or "BYTES", or a numpy type such as `np.float32`.
        shape: the shape that the function sees; -1 for a size that may vary.
    """

    datatype: Any
    shape: Sequence[int] = (-1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How a function is served. The arguments of `model` explain them."""

    name: str = ""
    batch: int = 0
    delay_us: int = 0
    repeat_failed: bool = True
    instances: int = 1
    isolation: str = "process"
    concurrency: int = 64
    parameters: dict[str, str] = field(default_factory=dict)


@overload
def model(target: F, /) -> F: ...


@overload
def model(
    *,
    name: str = "",
    batch: int = 0,
    delay_us: int = 0,
    repeat_failed: bool = True,
    instances: int = 1,
    isolation: str = "process",
    concurrency: int = 64,
    parameters: dict[str, str] | None = None,
) -> Callable[[F], F]: ...


def model(
    target: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    batch: int = 0,
    delay_us: int = 0,
    repeat_failed: bool = True,
    instances: int = 1,
    isolation: str = "process",
    concurrency: int = 64,
    parameters: dict[str, str] | None = None,
) -> Any:
    """Say how a function or class is served. It stays what it is, and can be called as before.

    Args:
        target: the function or class.
        name: the model's name; the function's, if it is empty.
        batch: how many rows of different requests one call may get at once; 0 for a call per request.
        delay_us: how long a request waits for others to share its batch, in microseconds.
        repeat_failed: if a call for several requests raises an exception, call the function once more for each of
            them, so that only those fail that are to blame; False for a function that must not be called twice.
        instances: how many run side by side.
        isolation: "process", each instance in a process of its own, or "none", in the process that serves.
        concurrency: how many calls of an `async` function one instance has under way at once.
        parameters: further model parameters.

    Raises:
        DeclarationError: a value is out of range.
    """
    options = ModelOptions(
        name=name,
        batch=batch,
        delay_us=delay_us,
        repeat_failed=repeat_failed,
        instances=instances,
        isolation=isolation,
        concurrency=concurrency,
        parameters=dict(parameters or {}),
    )
    _check(options)

    def declare(declared: F) -> F:
        setattr(declared, DECLARED, options)
        return declared

    return declare if target is None else declare(target)


def options_of(target: Callable[..., Any]) -> ModelOptions:
    """What `model` said of a function or class, or of the class of an object; the defaults if it was not used."""
    declared = code_of(target)
    found = vars(declared).get(DECLARED) if hasattr(declared, "__dict__") else None
    return found if isinstance(found, ModelOptions) else ModelOptions()


def _check(options: ModelOptions) -> None:
    limits = {"batch": 0, "delay_us": 0, "instances": 1, "concurrency": 1}
    for key, least in limits.items():
        value = getattr(options, key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise DeclarationError(f"model({key}={value!r}): it must be a whole number, at least {least}")
    if options.concurrency > 1024:
        raise DeclarationError(f"model(concurrency={options.concurrency}): it must be at most 1024")
    if options.delay_us and not options.batch:
        raise DeclarationError(
            f"model(delay_us={options.delay_us}): requests wait for each other only in batches; "
            "add batch=32, for instance"
        )
    if options.isolation not in ISOLATIONS:
        raise DeclarationError(f"model(isolation={options.isolation!r}): it must be 'process' or 'none'")
