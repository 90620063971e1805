"""Dynamic batching by tokens: what `parameters` of a configuration say about it.

`dynamic_batching.max_tokens` turns it on. A token is an element along an input's first dimension.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from halimede.config.model_config_pb2 import TYPE_STRING, ModelConfig, ModelInput
from halimede.core.datatypes import BY_NUMBER, Datatype

PREFIX: Final = "dynamic_batching."
MAX_TOKENS: Final = "dynamic_batching.max_tokens"
MAX_PADDING: Final = "dynamic_batching.max_padding"
TOKENS: Final = "dynamic_batching.tokens"
PAD_WITH: Final = "dynamic_batching.pad_with"
KNOWN: Final = (MAX_TOKENS, MAX_PADDING, TOKENS, PAD_WITH)


@dataclass(frozen=True, slots=True)
class TokenBatching:
    """How batches are closed by tokens.

    Attributes:
        max_tokens: the most tokens of a batch, padding included; a single request may have more, and runs alone.
        max_padding: the largest share of a batch, 0 to 1, that may be padding.
        source: the input whose elements count.
        padded: requests of different lengths are filled up to the longest; False if they are joined flat.
        fill: input → what it is filled up with, by the server; empty where the model gets each request by itself.
    """

    max_tokens: int
    max_padding: float
    source: str
    padded: bool
    fill: Mapping[str, int]


class TokenBatchingError(Exception):
    """A parameter is wrong.

    Attributes:
        parameter: its key.
        message: what is wrong, beginning with the key.
        fix: a value that would be right; "" if none can be told.
    """

    def __init__(self, parameter: str, what: str, fix: str = "") -> None:
        self.parameter = parameter
        self.message = f"parameter '{parameter}' {what}"
        self.fix = fix
        super().__init__(self.message)


def read_token_batching(config: ModelConfig) -> TokenBatching | None:
    """What a configuration with complete tensors, batch size and batching says; None if its batches are closed by rows.

    Raises:
        TokenBatchingError: a parameter is wrong.
    """
    if (limits := read_limits(config)) is None:
        return None
    if not config.HasField("dynamic_batching"):
        raise TokenBatchingError(MAX_TOKENS, "has no effect without dynamic_batching { }")
    if not config.max_batch_size:
        raise TokenBatchingError(MAX_TOKENS, "needs a max_batch_size above 0")
    preferred = list(config.dynamic_batching.preferred_batch_size)
    if preferred not in ([], [config.max_batch_size]):  # the second is what it is completed to
        what = "closes batches by tokens, so preferred_batch_size, which counts rows, cannot be set beside it"
        raise TokenBatchingError(MAX_TOKENS, what)
    max_tokens, max_padding = limits
    variable = {entry.name: entry for entry in config.input if _is_variable(entry)}
    source = _text(config, TOKENS) or next(iter(variable), "")
    if source not in variable:
        names = ", ".join(f"'{name}'" for name in variable) or "none"
        what = f"names '{source}'" if TOKENS in config.parameters else "is set"
        raise TokenBatchingError(
            TOKENS if TOKENS in config.parameters else MAX_TOKENS,
            f"{what}, but only inputs whose first dimension is variable (dims: [ -1 ]) have tokens; "
            f"the model has {names}",
            next(iter(variable), ""),
        )
    alone = config.backend == "python"
    fill = dict.fromkeys((name for name, entry in variable.items() if _can_be_filled(entry)), 0)
    for name, value in _values(config):
        if name not in fill:
            names = ", ".join(f"'{each}'" for each in fill) or "none"
            what = f"names '{name}', which is not filled up; inputs that are: {names}"
            raise TokenBatchingError(PAD_WITH, what)
        datatype = BY_NUMBER[variable[name].data_type]
        if not _holds(datatype, value):
            raise TokenBatchingError(
                PAD_WITH, f"fills '{name}' up with {value}, which {datatype} cannot hold"
            )
        fill[name] = value
    ragged = variable[source].allow_ragged_batch
    if not (ragged or alone or source in fill):
        raise TokenBatchingError(
            TOKENS, f"names '{source}', which cannot be filled up: it has strings or a reshape"
        )
    return TokenBatching(max_tokens, max_padding, source, padded=not ragged, fill={} if alone else fill)


def read_limits(config: ModelConfig) -> tuple[int, float] | None:
    """The most tokens of a batch and the largest share of padding; None if batches are closed by rows.

    Raises:
        TokenBatchingError: a parameter is wrong, whatever the model completes.
    """
    given = [key for key in config.parameters if key.startswith(PREFIX)]
    if not given:
        return None
    for key in given:
        if key not in KNOWN:
            raise TokenBatchingError(key, f"is unknown; known are {', '.join(KNOWN)}")
    if MAX_TOKENS not in given:
        raise TokenBatchingError(given[0], f"has no effect without '{MAX_TOKENS}'")
    text = _text(config, MAX_TOKENS)
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise TokenBatchingError(MAX_TOKENS, f"must be a whole number above 0, got '{text}'", "4096")
    share = _text(config, MAX_PADDING) or "1"
    try:
        max_padding = float(share)
    except ValueError:
        max_padding = -1.0
    if not 0 <= max_padding <= 1:
        raise TokenBatchingError(MAX_PADDING, f"must be a share from 0 to 1, got '{share}'", "0.2")
    return int(text), max_padding


def _is_variable(entry: ModelInput) -> bool:
    return list(entry.dims[:1]) == [-1]


def _can_be_filled(entry: ModelInput) -> bool:
    plain = not (entry.allow_ragged_batch or entry.HasField("reshape") or entry.optional)
    return plain and entry.data_type != TYPE_STRING and entry.data_type in BY_NUMBER


def _holds(datatype: Datatype, value: int) -> bool:
    if not np.issubdtype(datatype.numpy, np.integer):
        return True
    limits = np.iinfo(datatype.numpy)
    return int(limits.min) <= value <= int(limits.max)


def _values(config: ModelConfig) -> Iterator[tuple[str, int]]:
    """What `pad_with` says: the inputs and their values."""
    text = _text(config, PAD_WITH)
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        try:
            yield name.strip(), int(value)
        except ValueError:
            what = f"must be INPUT=INTEGER, several separated by commas, got '{text}'"
            raise TokenBatchingError(PAD_WITH, what, "input_ids=1") from None


def _text(config: ModelConfig, key: str) -> str:
    return config.parameters[key].string_value.strip() if key in config.parameters else ""
