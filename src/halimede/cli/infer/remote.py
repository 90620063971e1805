"""A model on a running server, as `halimede infer` speaks to it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from halimede.core.datatypes import Datatype

Array = npt.NDArray[Any]


class RemoteError(Exception):
    """The server cannot be reached, or has answered with an error; the text says which."""


class UnknownModelError(RemoteError):
    """The server has no such model, or none that is ready."""


@dataclass(frozen=True, slots=True)
class RemoteTensor:
    """An input or output, as the model's metadata has it.

    Attributes:
        name: its name.
        datatype: what an element is.
        shape: the shape that requests have, -1 for a size that may vary.
        optional: a request may leave it out.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.datatype} {list(self.shape)}" + (" (optional)" if self.optional else "")


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """What a model takes and gives.

    Attributes:
        name: its name.
        inputs: what it takes.
        outputs: what it gives.
        decoupled: any number of responses answer a request.
    """

    name: str
    inputs: tuple[RemoteTensor, ...]
    outputs: tuple[RemoteTensor, ...]
    decoupled: bool


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """One request.

    Attributes:
        model: the model's name.
        version: its version; "" for the highest that is ready.
        inputs: name → array, BYTES as an object array of `bytes`.
        datatypes: name → datatype, of the inputs.
        outputs: the outputs wanted; all if empty.
        classes: that many classes in place of each output; 0 for the output itself.
        parameters: parameters of the request.
    """

    model: str
    version: str
    inputs: Mapping[str, Array]
    datatypes: Mapping[str, Datatype]
    outputs: Sequence[str]
    classes: int
    parameters: Mapping[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class RemoteOutput:
    """One output of a response."""

    name: str
    datatype: str
    array: Array


class Remote(Protocol):
    """A running server.

    All methods raise:
        RemoteError: the server cannot be reached, or answers with an error.
    """

    def model(self, name: str, version: str) -> RemoteModel:
        """What the model takes and gives."""

    def models(self) -> list[str]:
        """The names of the models that there are."""

    def infer(self, request: RemoteRequest) -> Sequence[RemoteOutput]:
        """The outputs."""

    def stream(self, request: RemoteRequest) -> Iterator[Sequence[RemoteOutput]]:
        """The outputs of each response, as they come."""
