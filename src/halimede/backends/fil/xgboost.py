"""Large batches of forests that XGBoost has trained, computed by XGBoost itself.

On one thread it is faster than ONNX Runtime from some hundred rows on; for fewer, what a call costs before the first
row counts more. On several threads ONNX Runtime stays: the threads of XGBoost spin while they wait for each other,
which on a busy machine takes longer than the trees.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import treelite

from halimede.backends.batch import Batch
from halimede.backends.fil.booster import Booster, BoosterError, library
from halimede.backends.fil.forest import ForestSpec, OutputForm
from halimede.backends.fil.onnx import INPUT, OUTPUT
from halimede.backends.onnx.backend import OnnxInstance
from halimede.config.signature import Signature
from halimede.core.errors import InternalError
from halimede.core.tensors import Array

MIN_ROWS = 256
"""Smaller batches ONNX Runtime does as fast or faster: of 20 to 500 trees, 3 to 10 deep, they draw level at 256
rows or before."""

logger = logging.getLogger("halimede")

_PROBE_ROWS = 64


class XgboostInstance(OnnxInstance):
    """Runs large batches with XGBoost's own predictor, and others as `OnnxInstance` does."""

    def __init__(
        self,
        session: Any,
        signature: Signature,
        options: Any,
        booster: Booster,
        form: OutputForm,
    ) -> None:
        super().__init__(session, signature, options, may_block=False)
        self._booster: Booster | None = booster
        self._form = form

    def execute(self, batch: Batch) -> None:
        """Run the batch."""
        if batch.size < MIN_ROWS:
            super().execute(batch)
            return
        assert self._booster is not None
        rows = batch.gather()[INPUT]
        try:
            scores = self._booster.predict(rows)
        except BoosterError as error:
            raise InternalError(f"xgboost error: {error}") from error
        batch.scatter({OUTPUT: self._form.apply(scores)})

    def close(self) -> None:
        """Let go of the forest."""
        super().close()
        self._booster = None


def booster_of(path: Path, forest: treelite.Model, spec: ForestSpec) -> Booster | None:
    """XGBoost's own reading of the file, for all instances.

    None if XGBoost is not installed, cannot read the file, or gives other scores than treelite: `multi:softmax`, for
    one, gives classes.

    Args:
        path: an XGBoost file.
        forest: treelite's reading of it.
        spec: of the forest.
    """
    if library() is None:
        return None
    rows = _probe(spec.features)
    try:
        booster = Booster(path.read_bytes())
        found = booster.predict(rows)
    except BoosterError as error:
        logger.debug("XGBoost does not take %s, which ONNX Runtime computes alone: %s", path, error)
        return None
    expected = treelite.gtil.predict(forest, rows, nthread=1).reshape(len(rows), spec.scores)
    same = found.shape == expected.shape and np.allclose(found, expected, rtol=1e-5, atol=1e-5)
    return booster if same else None


def _probe(features: int) -> Array:
    """Rows to compare scores by, a tenth of their values missing."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((_PROBE_ROWS, features), np.float32)
    rows[random.random(rows.shape) < 0.1] = np.nan
    return rows
