"""AWS's service models, as botocore brings them, without what the host has no use for.

A whole model takes 13 MB, most of them descriptions, and shapes of operations that the host does not have.
"""

import gzip
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
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
    document = _document(name)
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


def _document(name: str) -> Mapping[str, Any]:
    """A service's model as AWS wrote it.

    `Loader.load_service_model` looks through the directories of all services first, and takes several times as long.
    """
    loader = Loader()
    version = loader.determine_latest_version(name, "service-2")
    for directory in loader.search_paths:
        file = Path(directory, name, version, "service-2.json")
        if file.is_file():
            return _parsed(file.read_bytes())
        if (packed := file.with_suffix(".json.gz")).is_file():
            return _parsed(gzip.decompress(packed.read_bytes()))
    raise FileNotFoundError(f"botocore has no model of the service {name!r}")


def _parsed(text: bytes) -> Mapping[str, Any]:
    document: Mapping[str, Any] = orjson.loads(text)
    return document


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
    """A part of a model without descriptions."""
    if isinstance(part, Mapping):
        return {
            name: _plain(each)
            for name, each in part.items()
            if name != "documentation" or not isinstance(each, str)
        }
    return [_plain(each) for each in part] if isinstance(part, list) else part
