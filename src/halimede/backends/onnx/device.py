"""Runs between tensors that are on the session's device already, or stay there, bound by their addresses."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from halimede.backends.batch import Batch
from halimede.backends.devices import DeviceMemory, Piece, Rows, inputs_on, joined_shape, keep, staying, taken
from halimede.config.signature import Signature
from halimede.core.datatypes import BF16, BYTES
from halimede.core.device_tensors import CUDA, Device, device_name
from halimede.core.tensors import Array

_ALIGNMENT = 256
"""Of what onnxruntime's own allocator gives, and its kernels may count on."""

_LEGACY_STREAM = 1
"""The stream of CUDA that waits for all others. onnxruntime does not say which is its own."""

_GRAPHS = ("enable_cuda_graph", "trt_cuda_graph_enable")
"""Options of providers with which every run must use the same memory."""


class DeviceRuns:
    """Runs the batches of one instance whose tensors are on its device, or stay there.

    Attributes:
        device: where they are.
    """

    def __init__(self, session: Any, signature: Signature, options: Any, device: Device) -> None:
        self.device = device
        self._session = session
        self._signature = signature
        self._options = options
        kind, _, number = device_name(device).partition(":")
        self._place = kind, int(number)
        self._stream = _LEGACY_STREAM if device[0] == CUDA else None

    def execute(self, batch: Batch) -> bool:
        """Run the batch, and set its responses; False if none of its tensors is on the device, or stays there.

        Raises:
            HalimedeError: an input on the device cannot be had.
            Exception: onnxruntime fails; its errors have no common base.
        """
        stays = staying(batch)
        blocks: dict[str, list[Piece]] = {}
        for name, tensors in inputs_on(batch, self.device).items():
            pieces = taken(name, tensors, self._stream)
            if _is_block(pieces):
                blocks[name] = pieces
        if not blocks and not stays:
            return False
        arrays = batch.gather(blocks)
        binding = self._session.io_binding()
        for name, array in arrays.items():
            binding.bind_cpu_input(name, array if array.flags.aligned else array.copy())
        for name, pieces in blocks.items():
            element = self._signature.inputs[name].datatype.numpy.type
            binding.bind_input(name, *self._place, element, joined_shape(batch, name), pieces[0].address)
        names = batch.wanted()
        for name in names:
            binding.bind_output(name, *(self._place if name in stays else ("cpu", 0)))
        self._session._sess.run_with_iobinding(binding._iobinding, self._options)  # noqa: SLF001 - as `BoundRuns`
        values = dict(zip(names, binding.get_outputs(), strict=True))
        batch.scatter({name: _shaped(value.numpy()) for name, value in values.items() if name not in stays})
        for name in stays:
            self._keep(batch, name, values[name])
        return True

    def _keep(self, batch: Batch, name: str, value: Any) -> None:
        def copy(rows: Rows) -> Array:
            return _shaped(value.numpy())[rows]

        datatype = self._signature.outputs[name].datatype
        shape = tuple(value.shape()) or (1,)
        keeper = value, self._session  # whose allocator it is
        keep(batch, name, DeviceMemory(value.data_ptr(), shape, datatype, self.device, keeper), copy)


def device_runs(session: Any, signature: Signature, options: Any, device: Device) -> DeviceRuns | None:
    """What runs batches on the device; None if the model's tensors cannot be bound by address there."""
    specs = [*signature.inputs.values(), *signature.outputs.values()]
    unbound = any(spec.datatype in (BYTES, BF16) for spec in specs) or signature.batch_inputs
    graphs = any(
        options.get(name, "0") not in ("0", "False", "false")
        for options in session.get_provider_options().values()
        for name in _GRAPHS
    )
    return None if unbound or graphs else DeviceRuns(session, signature, options, device)


def _is_block(pieces: Sequence[Piece]) -> bool:
    """Whether the pieces are one block of memory, as those are of requests that shared the batch before too."""
    together = all(one.address + one.size == other.address for one, other in pairwise(pieces))
    return together and pieces[0].address % _ALIGNMENT == 0


def _shaped(array: Array) -> Array:
    """The array as the configuration has it, which says one element instead of a scalar."""
    return array if array.ndim else array.reshape(1)
