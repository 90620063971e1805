"""What a PyTorch program says that it takes and gives, and which of it each name of the configuration means.

Conventions are those of Triton's PyTorch backend: names of the program's own, `<name>__<index>`, or the order of the
configuration.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from halimede.backends.ports import check_batch_input
from halimede.config.model_config_pb2 import ModelConfig, ModelInput, ModelOutput
from halimede.core.datatypes import BY_NUMBER, BYTES, Datatype
from halimede.core.errors import InvalidArgumentError

Place = int | str
"""Where a value goes or comes from: its position, or its key in a dictionary."""

_INDEXED = re.compile(r".+__(\d+)")


@dataclass(frozen=True, slots=True)
class Port:
    """One value that a program takes or gives.

    Attributes:
        name: its name; that of an output that has none of its own is ``OUTPUT__<index>``.
        datatype: BYTES for a list of strings, None for a tensor of which the program does not say it.
        shape: the whole shape, -1 for a variable size; None if the program does not say it.
        required: (inputs) a call cannot leave it out.
        aliases: other names that the configuration may use.
    """

    name: str
    datatype: Datatype | None = None
    shape: tuple[int, ...] | None = None
    required: bool = True
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """All that a program takes, or all that it gives.

    Attributes:
        word: ``input`` or ``output``.
        text: how the program itself writes it, for errors.
        ports: the values in order; empty if `keyed` or `counted`.
        keyed: it is one dictionary, and names are its keys.
        counted: it is a list of tensors, whose length only a run tells.
        untyped: a value of which it says no datatype may also be strings, as only a run tells.
        strict: a name that is neither the program's nor indexed is an error, and does not go by its position.
    """

    word: str
    text: str
    ports: tuple[Port, ...] = ()
    keyed: bool = False
    counted: bool = False
    untyped: bool = False
    strict: bool = False

    def places(self, config: ModelConfig, names: Sequence[str]) -> dict[str, Place]:
        """Name of the configuration → where its value goes or comes from.

        Raises:
            InvalidArgumentError: a name means nothing, two mean the same, or a required value has none.
        """
        if self.keyed:
            return {name: name for name in names}
        known = {
            alias: index for index, port in enumerate(self.ports) for alias in (port.name, *port.aliases)
        }
        indexed = {name: int(found[1]) for name in names if (found := _INDEXED.fullmatch(name))}
        if all(name in known for name in names):
            places = {name: known[name] for name in names}
        elif len(indexed) == len(names):
            places = indexed
        else:
            places = {name: index for index, name in enumerate(names)}
            # a name of the program's at another's position says that the order is not meant
            if self.strict or any(known.get(name, index) != index for name, index in places.items()):
                raise self._error(config, f"it has no {self.word} '{_first_missing(names, known)}'")
        self._check(config, places)
        return {**places}

    def port(self, place: Place) -> Port | None:
        """What the program says of the value there, None for nothing."""
        return self.ports[place] if isinstance(place, int) and place < len(self.ports) else None

    def _check(self, config: ModelConfig, places: dict[str, int]) -> None:
        taken: dict[int, str] = {}
        for name, index in places.items():
            if not self.counted and index >= len(self.ports):
                raise self._error(config, f"{self.word} '{name}' would be number {index}, from 0")
            if index in taken:
                raise self._error(config, f"{self.word}s '{taken[index]}' and '{name}' are the same one")
            taken[index] = name
        for index, port in enumerate(self.ports):
            if self.word == "input" and port.required and index not in taken:
                raise self._error(config, f"it requires input '{port.name}', which is not listed")

    def _error(self, config: ModelConfig, wrong: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"unable to load model '{config.name}': {wrong}; the model's {self.word}s are {self.text}. Names are "
            f"the model's own, or end with __<index>, or are in the model's order"
        )


def check_tensor(config: ModelConfig, side: Side, entry: ModelInput | ModelOutput, port: Port) -> None:
    """Hold an input or output of the configuration against what the program says of it.

    Raises:
        InvalidArgumentError: they contradict each other.
    """
    where = f"unable to load model '{config.name}', configuration expects"
    datatype = BY_NUMBER[entry.data_type]
    if port.datatype is not None and datatype is not port.datatype:
        msg = (
            f"{where} datatype {datatype.config_name} for {side.word} '{entry.name}', model provides "
            f"{port.datatype.config_name}"
        )
        raise InvalidArgumentError(msg)
    if port.datatype is None and datatype is BYTES and not side.untyped:
        msg = f"{where} strings for {side.word} '{entry.name}', model provides a tensor (in {side.text})"
        raise InvalidArgumentError(msg)
    dims = tuple(entry.reshape.shape if entry.HasField("reshape") else entry.dims)
    batched = config.max_batch_size > 0
    if datatype is BYTES and len(dims) > 1:
        msg = (
            f"unable to load model '{config.name}': PyTorch takes and gives strings as flat lists, so dims of "
            f"{side.word} '{entry.name}' must have one dimension, got {list(dims)}"
        )
        raise InvalidArgumentError(msg)
    if port.shape is None or any(entry.name in each.target_name for each in config.batch_output):
        return  # of an output that is cut with an input's shapes, only the order of its elements counts
    full = (-1, *dims) if batched else dims
    if isinstance(entry, ModelInput) and entry.allow_ragged_batch:
        full = (-1,)
    scalar = not port.shape and full == (1,)  # the configuration has no scalars; it says one element instead
    fits = len(full) == len(port.shape) and all(
        model == listed or (-1 in (model, listed) and not (batched and axis == 0))
        for axis, (model, listed) in enumerate(zip(port.shape, full, strict=True))
    )
    if not fits and not scalar:
        msg = (
            f"{where} shape {list(full)} for {side.word} '{entry.name}'"
            f"{' (the first dimension is the batch, as max_batch_size > 0)' if batched else ''}, model provides "
            f"{list(port.shape)}"
        )
        raise InvalidArgumentError(msg)


def check_batch_inputs(config: ModelConfig, side: Side) -> None:
    """Hold the tensors that are made from the batch against what the program takes.

    Raises:
        InvalidArgumentError: it takes another datatype or rank.
    """
    places = side.places(config, listed_names(config, side.word))
    for batch_input in config.batch_input:
        for name in batch_input.target_name:
            port = side.port(places[name])
            if port is None:
                continue
            if port.datatype is not None and port.datatype.number != batch_input.data_type:
                msg = (
                    f"unable to load model '{config.name}', configuration expects datatype "
                    f"{BY_NUMBER[batch_input.data_type].config_name} for input '{name}', model provides "
                    f"{port.datatype.config_name}"
                )
                raise InvalidArgumentError(msg)
            check_batch_input(config, batch_input, name, port.shape or ())


def _first_missing(names: Sequence[str], known: dict[str, int]) -> str:
    return next(name for name in names if name not in known)


def listed_names(config: ModelConfig, word: str) -> list[str]:
    """Names of the configuration's inputs, those made from the batch included, or of its outputs."""
    if word == "output":
        return [entry.name for entry in config.output]
    return [entry.name for entry in config.input] + [
        name for entry in config.batch_input for name in entry.target_name
    ]
