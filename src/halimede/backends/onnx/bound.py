"""Small batches of fixed shapes, run between buffers that are bound once.

A run that is given arrays makes onnxruntime wrap each input and allocate each output, which costs a tiny model
more than its work. Where every shape is known, the buffers of a batch size can stay bound: a run then costs
a copy in and a copy out, of a few kilobytes at the most.
"""

from typing import Any

import numpy as np

from halimede.backends.batch import Batch
from halimede.config.signature import Signature, TensorSpec
from halimede.core.datatypes import BF16
from halimede.core.requests import InferResponse
from halimede.core.tensors import Array, Tensor

MAX_BYTES = 16_384
"""Larger batches gain nothing from buffers of their own."""

_SIZES = 16
"""Batch sizes whose buffers are kept."""


class _Buffers:
    """The bound buffers of one batch size.

    Attributes:
        binding: what a run is given.
        inputs: name → bytes of the input.
        outputs: output and its bytes.
        arrays: name → the output as an array.
    """

    __slots__ = ("_arrays", "arrays", "binding", "inputs", "outputs")

    def __init__(self, session: Any, signature: Signature, lead: tuple[int, ...]) -> None:
        self._arrays: list[Array] = []  # the binding has only their addresses
        binding = session.io_binding()
        self.inputs: dict[str, memoryview] = {}
        self.outputs: list[tuple[TensorSpec, memoryview]] = []
        self.arrays: dict[str, Array] = {}
        for spec in signature.inputs.values():
            array = self._allocate(spec, lead)
            binding.bind_input(spec.name, "cpu", 0, spec.datatype.numpy.type, array.shape, array.ctypes.data)
            self.inputs[spec.name] = array.data.cast("B")
        for spec in signature.outputs.values():
            array = self._allocate(spec, lead)
            binding.bind_output(spec.name, "cpu", 0, spec.datatype.numpy.type, array.shape, array.ctypes.data)
            self.outputs.append((spec, array.data.cast("B")))
            self.arrays[spec.name] = array
        self.binding = binding._iobinding  # noqa: SLF001 - what `run_with_iobinding` hands on

    def _allocate(self, spec: TensorSpec, lead: tuple[int, ...]) -> Array:
        array = np.zeros(lead + spec.dims, spec.datatype.numpy)
        self._arrays.append(array)
        return array


class BoundRuns:
    """Runs the batches of one instance for which that is possible."""

    def __init__(self, session: Any, signature: Signature, options: Any) -> None:
        self._session = session
        self._run = session._sess.run_with_iobinding  # noqa: SLF001 - without the checks that repeat ours
        self._signature = signature
        self._options = options
        self._batched = signature.max_batch_size > 0
        self._row_bytes = sum(
            spec.row_bytes for spec in (*signature.inputs.values(), *signature.outputs.values())
        )
        self._buffers: dict[int, _Buffers] = {}

    def takes(self, batch: Batch) -> bool:
        """Whether the batch is small, and every request of it wants every output."""
        if not 0 < batch.size * self._row_bytes <= MAX_BYTES:
            return False
        every = len(batch.signature.outputs)
        return not [
            request for request in batch.requests if request.outputs and len(request.outputs) != every
        ]

    def execute(self, batch: Batch) -> None:
        """Run the batch, and set its responses."""
        buffers = self._buffers.get(batch.size) or self._bind(batch.size)
        requests, states = batch.requests, batch.states
        given = {} if states is None else states.gather(requests)
        for name, array in given.items():
            buffers.inputs[name][:] = array.data.cast("B")
        if len(requests) == 1:
            tensors = requests[0].inputs
            for name, view in buffers.inputs.items():
                if name not in given:
                    view[:] = tensors[name].data
        else:
            for name, view in buffers.inputs.items():
                if name not in given:
                    view[:] = b"".join([request.inputs[name].data for request in requests])
        batch.gathered()
        self._run(buffers.binding, self._options)
        batch.computed()
        responses: list[dict[str, Tensor]] = [{} for _ in requests]
        if states is not None:
            computed = {name: buffers.arrays[name].copy() for name in states.outputs}
            batch.taken = states.take(computed, batch.size)
        for spec, view in buffers.outputs:
            if spec.name not in batch.signature.outputs:
                continue
            data = bytes(view)
            if len(requests) == 1:
                shape = (batch.size, *spec.dims) if self._batched else spec.dims
                responses[0][spec.name] = Tensor(spec.datatype, shape, data)
                continue
            start = 0
            for request, outputs in zip(requests, responses, strict=True):
                end = start + request.batch_size * spec.row_bytes
                outputs[spec.name] = Tensor(spec.datatype, (request.batch_size, *spec.dims), data[start:end])
                start = end
        batch.responses = [InferResponse(outputs) for outputs in responses]

    def _bind(self, size: int) -> _Buffers:
        if len(self._buffers) >= _SIZES:
            del self._buffers[next(iter(self._buffers))]
        lead = (size,) if self._batched else ()
        buffers = self._buffers[size] = _Buffers(self._session, self._signature, lead)
        return buffers


def bound_runs(session: Any, signature: Signature, options: Any) -> BoundRuns | None:
    """Bound runs, if all inputs are required and all shapes are fixed; else None."""
    specs = (*signature.inputs.values(), *signature.outputs.values())
    shapes = {port.name: port.shape for port in session.get_outputs()}
    fixed = all(spec.row_bytes and not spec.optional and not spec.ragged for spec in specs)
    fixed = fixed and not (signature.batch_inputs or signature.batch_outputs)
    fixed = fixed and not any(spec.datatype is BF16 for spec in specs)  # its numpy type is another's
    tensors = all(shapes.get(name) for name in signature.outputs)  # an empty one is a scalar, or of any shape
    return BoundRuns(session, signature, options) if fixed and tensors else None
