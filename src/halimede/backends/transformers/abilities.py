"""What a model can do besides reading a whole text: tried when it is loaded, as its class does not tell.

A model that has its own kind of memory, such as a recurrent one, may give other results with rows that are filled up,
or fail. Texts are then written one by one; if it cannot even go on from what it has kept, each token reads the whole
text.
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import torch
from torch import Tensor
from torch.linalg import vector_norm

from halimede.backends.transformers.forward import Forward
from halimede.backends.transformers.rows import MakeCache, Rows

logger = logging.getLogger("halimede")

_TOLERANCE: Final = {torch.float32: 1e-3, torch.float64: 1e-3}
"""How far results may lie apart, relative to the results; in other precisions as much as `_ROUGH`."""

_ROUGH: Final = 0.1


class Ability(Enum):
    """How a model writes texts."""

    TOGETHER = "together"
    """The next tokens of all texts come from one pass."""
    SINGLY = "one by one"
    """Each text goes on from what is kept of it."""
    AGAIN = "by reading the whole text for each token"
    """Nothing is kept."""


def try_abilities(forward: Forward, plain: MakeCache, own: MakeCache, dtype: torch.dtype) -> Ability:
    """How the model writes texts.

    Args:
        forward: calls it.
        plain: makes a cache of plain keys and values.
        own: makes the cache that the model itself would.
        dtype: in which it computes.
    """
    if not forward.keeps:
        return Ability.AGAIN
    long, short = [3, 1, 4, 1, 5, 2, 6], [2, 7, 1]
    wanted = torch.cat([forward.read(long, 0, None), forward.read(short, 0, None)])
    tolerance = _TOLERANCE.get(dtype, _ROUGH)
    attempts: tuple[tuple[Ability, Callable[[], Tensor]], ...] = (
        (Ability.TOGETHER, lambda: _together(forward, plain, long, short)),
        (Ability.SINGLY, lambda: torch.cat([_singly(forward, own(), each) for each in (long, short)])),
    )
    for ability, attempt in attempts:
        try:
            error = _distance(attempt(), wanted)
        except Exception as failure:
            logger.debug("writing texts %s fails: %s: %s", ability.value, type(failure).__name__, failure)
            continue
        if error <= tolerance:
            return ability
        logger.debug("writing texts %s gives other results, by %.2g", ability.value, error)
    return Ability.AGAIN


def _together(forward: Forward, make_cache: MakeCache, *texts: list[int]) -> Tensor:
    """The last logits of texts, the last two tokens of which are read together."""
    rows = Rows(make_cache)
    for text in texts:
        cache = make_cache()
        forward.read(text[:1], 0, cache)
        if len(text) > 3:
            forward.read(text[1:-2], 1, cache)
        rows.join(cache, len(text) - 2)
    rows.step(forward, [text[-2] for text in texts])
    return rows.step(forward, [text[-1] for text in texts])


def _singly(forward: Forward, cache: Any, text: list[int]) -> Tensor:
    """The last logits of a text, the last two tokens of which are read one by one."""
    forward.read(text[:-2], 0, cache)
    forward.read(text[-2:-1], len(text) - 2, cache)
    return forward.read(text[-1:], len(text) - 1, cache)


def _distance(results: Tensor, wanted: Tensor) -> float:
    return float(vector_norm(results - wanted) / vector_norm(wanted).clamp(min=1e-12))
