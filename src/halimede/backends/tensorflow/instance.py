"""Runs batches in a TensorFlow session: arrays in and out, without copies where nobody can notice."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from halimede.backends.base import Instance
from halimede.backends.batch import Batch
from halimede.backends.tensorflow.errors import tensorflow_error
from halimede.backends.tensorflow.ports import GraphTensors
from halimede.backends.tensorflow.runtime import tf
from halimede.backends.tensorflow.session import Call, GraphSession
from halimede.config.signature import Signature
from halimede.core.datatypes import BF16
from halimede.core.tensors import Array

_BFLOAT16 = tf.bfloat16.as_numpy_dtype
_MAX_CALLS = 32


class TensorFlowInstance(Instance):
    """Runs batches in a session, which other instances may use too."""

    may_block = False

    def __init__(self, session: GraphSession, signature: Signature, tensors: GraphTensors) -> None:
        self.repeatable = session.state.repeatable
        self._session: GraphSession | None = session
        self._tensors = tensors
        batch_inputs = [target for each in signature.batch_inputs for target in each.target_name]
        self._inputs = (*signature.inputs, *batch_inputs)
        self._outputs = tuple(signature.outputs)
        self._scalars = [name for name in self._inputs if tensors.inputs[name].shape == ()]
        specs = signature.inputs
        self._bfloats = [name for name in specs if specs[name].datatype is BF16]
        self._dtypes = {
            name: _BFLOAT16 if spec.datatype is BF16 else spec.datatype.numpy
            for name, spec in signature.outputs.items()
        }
        self._bfloat_outputs = {name for name, spec in signature.outputs.items() if spec.datatype is BF16}
        self._whole = self._callable(self._inputs, self._outputs)
        self._parts: dict[tuple[tuple[str, ...], tuple[str, ...]], Call] = {}

    def execute(self, batch: Batch) -> None:
        """Run the batch for the outputs that its requests want."""
        arrays = batch.gather()
        for name in self._scalars:
            if name in arrays:
                arrays[name] = arrays[name].reshape(())
        for name in self._bfloats:
            if name in arrays:
                arrays[name] = arrays[name].view(_BFLOAT16)
        wanted = batch.wanted()
        try:
            if len(arrays) == len(self._inputs) and len(wanted) == len(self._outputs):
                values = self._whole(*[arrays[name] for name in self._inputs])
            else:
                values = self._part(tuple(arrays), tuple(wanted))(*arrays.values())
        except Exception as error:  # a shape that does not fit is a ValueError, most others are OpErrors
            raise tensorflow_error(error) from error
        batch.scatter(
            {name: self._output(name, value, arrays) for name, value in zip(wanted, values, strict=True)}
        )

    def close(self) -> None:
        """Let go of the session."""
        self._parts.clear()
        del self._whole
        self._session = None

    def _part(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Call:
        """What runs the model with some of its inputs, for some of its outputs."""
        call = self._parts.get((inputs, outputs))
        if call is None:
            if len(self._parts) >= _MAX_CALLS:
                self._parts.clear()
            call = self._parts[inputs, outputs] = self._callable(inputs, outputs)
        return call

    def _callable(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Call:
        assert self._session is not None
        return self._session.callable(
            [self._tensors.inputs[name].key for name in inputs],
            [self._tensors.outputs[name].key for name in outputs],
        )

    def _output(self, name: str, value: Any, inputs: Mapping[str, Array]) -> Array:
        """The output as an array of which nobody else has a view."""
        array: Array
        if isinstance(value, np.ndarray) and value.ndim:
            array = value
        else:
            # the configuration has no scalars; it says one element instead
            array = np.empty(1, self._dtypes[name])
            array[0] = value
        if array.dtype != np.object_:
            for given in inputs.values():
                if np.may_share_memory(array, given):
                    array = array.copy()
                    break
        return array.view(BF16.numpy) if name in self._bfloat_outputs else array
