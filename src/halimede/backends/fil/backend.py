"""Forests of decision trees: XGBoost, LightGBM and, by way of treelite, scikit-learn.

Treelite reads them. ONNX Runtime computes them, as it is the fastest at it on a CPU but for large batches, which
XGBoost's own forests leave to XGBoost; what ONNX has no words for, such as categorical splits, treelite computes.
"""

import tempfile
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime
import treelite

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.backends.fil.booster import Booster
from halimede.backends.fil.config import check, complete
from halimede.backends.fil.files import find_file, of_xgboost, read_forest
from halimede.backends.fil.forest import ForestSpec, OutputForm
from halimede.backends.fil.onnx import INPUT, OUTPUT, to_onnx
from halimede.backends.fil.settings import output_form, warn_of_ignored_fields
from halimede.backends.fil.xgboost import MIN_ROWS, XgboostInstance, booster_of
from halimede.backends.initial_states import refuse_states
from halimede.backends.onnx.backend import OnnxInstance, onnx_error
from halimede.backends.onnx.providers import run_options, session_options
from halimede.backends.parameters import integer_parameter
from halimede.backends.ports import check_controls
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, UnsupportedError

_ROWS_TO_SHARE = 64
"""Smaller batches treelite computes in one thread: to wake others and wait for them takes as long."""


class FilModel(BackendModel):
    """A forest; its instances share it."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        self._lock = Lock()
        self._kind, self._path = find_file(source)
        self._forest: treelite.Model | None = read_forest(source, self._kind, self._path)
        try:
            self._spec = ForestSpec.of(self._forest)
        except UnsupportedError as error:
            raise UnsupportedError(f"unable to load model '{source.name}': {error.message}") from error
        except ValueError as error:
            raise self._damaged(error) from error
        self._session: Any = None
        self._booster: Booster | None = None

    def complete_config(self) -> None:
        """Fill in input, output and batching as the forest has them."""
        complete(self.source.config, self._spec, self._form(), dict(self.options.settings))

    def check_config(self) -> None:
        """Hold the complete configuration against the forest."""
        refuse_states(self.source.config)
        check_controls(self.source.config, {})
        check(self.source.config, self._spec, self._form())
        warn_of_ignored_fields(self.source.config)

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance on the CPU."""
        config = self.source.config
        if spec.kind == "KIND_GPU":
            msg = f"model '{config.name}': forests run on the CPU only; use KIND_CPU or KIND_AUTO in instance_group"
            raise UnsupportedError(msg)
        with self._lock:
            if self._session is None and self._forest is not None:
                self._load(self._forest)
        if self._session is not None:
            signature, options = Signature.from_config(config), run_options(config, self.options)
            if self._booster is None:
                return OnnxInstance(self._session, signature, options, may_block=False)
            return XgboostInstance(self._session, signature, options, self._booster, self._form())
        assert self._forest is not None
        return TreeliteInstance(self._forest, self._spec, self._form(), _threads(config, self.options))

    def close(self) -> None:
        """Give up the forest; its memory is free once no instance holds it."""
        self._session = self._forest = self._booster = None

    def _form(self) -> OutputForm:
        return output_form(self.source.config, self._spec)

    def _damaged(self, error: Exception) -> InvalidArgumentError:
        msg = f"unable to load model '{self.source.name}': the forest in {self._path} is damaged: {error}"
        return InvalidArgumentError(msg)

    def _load(self, forest: treelite.Model) -> None:
        """Have ONNX Runtime take the forest over, if it can."""
        try:
            graph = to_onnx(forest, self._spec, self._form())
        except (IndexError, ValueError) as error:
            # treelite checks little of a checkpoint
            raise self._damaged(error) from error
        if graph is None:
            return
        options = session_options(self.source.config, self.options, self.source.directory)
        # By path: a session keeps the bytes that it is given.
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "forest.onnx")
            path.write_bytes(graph.SerializeToString())
            try:
                self._session = onnxruntime.InferenceSession(
                    str(path), options, ["CPUExecutionProvider"], enable_fallback=0
                )
            except Exception as error:  # onnxruntime's errors have no common base
                raise onnx_error(error) from error
        config = self.source.config
        large = config.max_batch_size >= MIN_ROWS and _threads(config, self.options) == 1
        if large and of_xgboost(self._kind):
            self._booster = booster_of(self._path, forest, self._spec)
        self._forest = None


class TreeliteInstance(Instance):
    """Runs batches with treelite's own predictor."""

    repeatable = True

    def __init__(self, forest: treelite.Model, spec: ForestSpec, form: OutputForm, threads: int) -> None:
        self._forest: treelite.Model | None = forest
        self._spec = spec
        self._form = form
        self._threads = threads

    def execute(self, batch: Batch) -> None:
        """Run the batch."""
        assert self._forest is not None
        rows = batch.gather()[INPUT]
        try:
            threads = self._threads if len(rows) >= _ROWS_TO_SHARE else 1
            found = treelite.gtil.predict(self._forest, rows, nthread=threads)
        except treelite.TreeliteError as error:
            raise _treelite_error(error) from error
        scores = found.reshape(len(rows), self._spec.scores).astype(np.float32, copy=False)
        batch.scatter({OUTPUT: self._form.apply(scores)})

    def close(self) -> None:
        """Let go of the forest."""
        self._forest = None


def _treelite_error(error: Exception) -> HalimedeError:
    return InternalError(f"treelite error: {' '.join(str(error).split())}")


def _threads(config: ModelConfig, options: BackendOptions) -> int:
    return integer_parameter(config, "intra_op_thread_count") or options.cpu_threads
