"""Preprocessing pipelines that DALI runs: decoding of images and sound, resizing, cropping and the like.

A batch is one run of the pipeline. DALI takes each sample with its own shape, so requests with images of different
sizes share a run. After an error a pipeline is of no use any more, so the instance makes another; the requests of the
batch are then tried one by one (`Instance.repeatable`), and only those that fail alone are answered with errors.
"""

from collections.abc import Iterator
from typing import Any

from nvidia.dali import plugin_manager
from nvidia.dali.pipeline import Pipeline

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.backends.dali.config import check, complete
from halimede.backends.dali.definition import Definition
from halimede.backends.dali.errors import dali_error
from halimede.backends.dali.files import read_definition
from halimede.backends.dali.outputs import cut, single
from halimede.backends.dali.settings import DaliSettings, plugin_libraries
from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.initial_states import refuse_states
from halimede.backends.ports import check_controls
from halimede.config.signature import Signature
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, UnsupportedError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Array, Tensor


class DaliModel(BackendModel):
    """A pipeline; each instance builds one of its own from it."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        self._definition = read_definition(source)
        for library in plugin_libraries(options.settings):
            try:
                plugin_manager.load_library(library)
            except Exception as error:  # DALI's errors have no common base
                msg = f"--backend-config dali,plugin_libs: cannot load '{library}': {error}"
                raise InvalidArgumentError(msg) from error

    def complete_config(self) -> None:
        """Fill in inputs, outputs and batching as the pipeline has them."""
        complete(self.source.config, self._definition, dict(self.options.settings))

    def check_config(self) -> None:
        """Hold the complete configuration against the pipeline."""
        refuse_decoupled(self.source.config)
        refuse_states(self.source.config)
        check_controls(self.source.config, {})
        check(self.source.config, self._definition)

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance with a pipeline of its own, on a GPU only if the pipeline has something that runs there."""
        config = self.source.config
        definition = self._definition
        if definition.uses_gpu and spec.kind == "KIND_CPU":
            msg = (
                f"unable to load model '{config.name}': its pipeline has operators that run on a GPU, but its "
                f'instances are KIND_CPU; say KIND_GPU on a machine that has one, or device="cpu" in the pipeline'
            )
            raise UnsupportedError(msg)
        settings = DaliSettings.of(config)
        arguments = {
            "batch_size": max(1, config.max_batch_size),
            "num_threads": settings.threads_of(definition, self.options.cpu_threads),
            "device_id": spec.device if definition.uses_gpu else None,
            # one run at a time, whose outputs are wanted at once
            "exec_async": False,
            "exec_pipelined": False,
            "prefetch_queue_depth": 1,
        }
        names = (config.name, str(self.source.directory))
        return DaliInstance(definition, Signature.from_config(config), settings, arguments, names)


class DaliInstance(Instance):
    """Runs batches in a pipeline."""

    may_block = False
    repeatable = True

    def __init__(
        self,
        definition: Definition,
        signature: Signature,
        settings: DaliSettings,
        arguments: dict[str, Any],
        names: tuple[str, ...],
    ) -> None:
        self._data = definition.data
        self._scalars = frozenset(slot.name for slot in definition.inputs if slot.ndim == 0)
        self._signature = signature
        self._split = settings.split
        self._arguments = arguments
        self._names = names
        self._pipeline: Any = None
        self._pipeline = self._built()

    def execute(self, batch: Batch) -> None:
        """Run the batch."""
        pipeline = self._built()
        try:
            for name in self._signature.inputs:
                pipeline.feed_input(name, list(self._samples(batch, name)))
            batch.gathered()
            outputs = pipeline.run()
            outputs = [output.as_cpu() for output in outputs]
        except Exception as error:  # DALI's errors have no common base
            # an input may wait in it, or it may be broken for good
            self._pipeline = None
            raise dali_error(error, self._names) from error
        batch.computed()
        batch.responses = list(self._responses(batch, outputs))

    def close(self) -> None:
        """Let go of the pipeline."""
        self._pipeline = None

    def _built(self) -> Any:
        """The pipeline, which takes inputs."""
        if self._pipeline is None:
            try:
                self._pipeline = Pipeline.deserialize(self._data, **self._arguments)
            except Exception as error:  # DALI's errors have no common base
                raise dali_error(error, self._names) from error
        return self._pipeline

    def _samples(self, batch: Batch, name: str) -> Iterator[Array]:
        batched = self._signature.max_batch_size > 0
        for request in batch.requests:
            array = request.inputs[name].array
            if batched:
                yield from array
            else:
                yield array.reshape(()) if name in self._scalars else array

    def _responses(self, batch: Batch, outputs: list[Any]) -> Iterator[InferResponse]:
        """The responses, in the order of the requests."""
        columns: list[tuple[str, list[Tensor | InternalError]]] = []
        wanted = frozenset(batch.wanted())
        for (name, spec), samples in zip(self._signature.outputs.items(), outputs, strict=True):
            if name in wanted:
                if self._signature.max_batch_size > 0:
                    columns.append((name, cut(spec, samples, batch.requests, split=name in self._split)))
                else:
                    columns.append((name, [single(spec, samples)]))
        for index, request in enumerate(batch.requests):
            tensors: dict[str, Tensor] = {}
            failure: HalimedeError | None = None
            for name, pieces in columns:
                piece = pieces[index]
                if request.outputs and name not in request.outputs:
                    continue
                if isinstance(piece, InternalError):
                    failure = failure or piece
                else:
                    tensors[name] = piece
            yield InferResponse(error=failure) if failure else InferResponse(tensors)
