"""The repository that is made of what is given, for as long as it is served."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halimede.files.directories import link_model
from halimede.files.targets import Target, TargetError, read_target
from halimede.functions.callables import is_object
from halimede.functions.places import Place, forget
from halimede.functions.repository import write_function_model


@dataclass(frozen=True, slots=True)
class Made:
    """A model that was made of something given.

    Attributes:
        name: the model's.
        source: what was given.
        kind: what it was taken for.
    """

    name: str
    source: str
    kind: str


@dataclass(frozen=True, slots=True)
class GivenRepository:
    """The repository.

    Attributes:
        directory: where it is.
        models: what it holds.
    """

    directory: Path
    models: tuple[Made, ...]


@contextmanager
def given_repository(given: Iterable[str | Path | Callable[..., Any]]) -> Iterator[GivenRepository]:
    """A repository of what is given, which is removed at the end of the block.

    Raises:
        TargetError: something cannot be served, or two models have one name.
        DeclarationError: a function cannot be served.
    """
    targets: dict[str, Target] = {}
    for each in given:
        target = read_target(each)
        other = targets.setdefault(target.name, target)
        if other is not target:
            raise TargetError(
                f"'{other.source}' and '{target.source}' would both be model '{target.name}'; name one: "
                f"other_name={target.source}"
            )
    directory = Path(tempfile.mkdtemp(prefix="halimede-given-"))
    places: list[Place] = []
    try:
        made = []
        for target in targets.values():
            if isinstance(target.what, Path):
                kind = link_model(directory, target.name, target.what)
            else:
                places.append(write_function_model(directory, target.name, target.what))
                kind = (
                    "class"
                    if isinstance(target.what, type)
                    else "object"
                    if is_object(target.what)
                    else "function"
                )
            made.append(Made(target.name, target.source, kind))
        yield GivenRepository(directory, tuple(made))
    finally:
        for place in places:
            forget(place)
        shutil.rmtree(directory, ignore_errors=True)
