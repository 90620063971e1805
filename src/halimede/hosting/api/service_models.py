"""AWS's service models, as botocore brings them, without what the host has no use for.

A whole model takes 13 MB, most of them descriptions, and shapes of operations that the host does not have.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel

_SHAPES = ("input", "output", "errors")


@cache
def service_model(name: str, operations: frozenset[str]) -> ServiceModel:
    """A service's model, with all operations' names, and the shapes of some.

    Args:
        name: as botocore calls the service.
        operations: those whose shapes are wanted; none for those of all.
    """
    document = Loader().load_service_model(name, "service-2")
    wanted = operations or document["operations"].keys()
    kept = {
        each: _plain({key: part for key, part in operation.items() if each in wanted or key not in _SHAPES})
        for each, operation in document["operations"].items()
    }
    shapes = document["shapes"]
    reached = _reached(shapes, kept)
    return ServiceModel(
        {
            "metadata": _plain(document["metadata"]),
            "operations": kept,
            "shapes": {each: _plain(shape) for each, shape in shapes.items() if each in reached},
        },
        name,
    )


def _reached(shapes: Mapping[str, Any], operations: Mapping[str, Any]) -> Collection[str]:
    """The shapes that operations have, and those that these have."""
    reached = dict.fromkeys(_named(operations))
    for name in (every := list(reached)):  # grows meanwhile
        for other in _named(shapes[name]):
            if other not in reached:
                reached[other] = None
                every.append(other)
    return reached


def _named(part: Any) -> Iterator[str]:
    """The shapes that a part of a model names."""
    if isinstance(part, Mapping):
        if isinstance(part.get("shape"), str):
            yield part["shape"]
        part = part.values()
    elif not isinstance(part, list):
        return
    for each in part:
        yield from _named(each)


def _plain(part: Any) -> Any:
    """A part of a model without descriptions; botocore's dictionaries know their order twice."""
    if isinstance(part, Mapping):
        return {
            name: _plain(each)
            for name, each in part.items()
            if name != "documentation" or not isinstance(each, str)
        }
    return [_plain(each) for each in part] if isinstance(part, list) else part
