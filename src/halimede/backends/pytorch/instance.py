"""Runs batches in a PyTorch program: arrays to tensors, one call, and its results to arrays."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from halimede.backends.base import Instance
from halimede.backends.batch import Batch
from halimede.backends.devices import Rows, inputs_on, keep, refused, staying
from halimede.backends.pytorch.errors import pytorch_error
from halimede.backends.pytorch.openmp import end_pool
from halimede.backends.pytorch.ports import Place, listed_names
from halimede.backends.pytorch.program import Program, Value, results_of
from halimede.backends.pytorch.settings import Settings
from halimede.backends.pytorch.tensors import DATATYPES, from_array, from_strings, to_array, to_strings
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature, TensorSpec
from halimede.core.datatypes import BY_NUMBER, BYTES
from halimede.core.device_tensors import CUDA, DeviceTensor
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.tensors import Array


class PyTorchInstance(Instance):
    """Runs batches in a program.

    Args:
        program: the program.
        config: the model's configuration.
        settings: how to run it.
        device: where its inputs go.
    """

    def __init__(self, program: Program, config: ModelConfig, settings: Settings, device: str) -> None:
        self.may_block = device != "cpu" or program.may_block
        self.repeatable = not program.writes
        self._program: Program | None = program
        self._settings = settings
        self._without_grad = settings.without_grad()
        self._device = None if device == "cpu" else device
        place = torch.device(device)
        if place.type == "cuda" and place.index is not None:
            self.device = CUDA, place.index
        self._signature = Signature.from_config(config)
        self._batched = self._signature.max_batch_size > 0
        self._datatypes = {name: spec.datatype for name, spec in self._signature.inputs.items()}
        for batch_input in self._signature.batch_inputs:
            datatype = BY_NUMBER[batch_input.data_type]
            self._datatypes.update(dict.fromkeys(batch_input.target_name, datatype))
        self._inputs = program.inputs.places(config, listed_names(config, "input"))
        self._outputs = program.outputs.places(config, listed_names(config, "output"))
        flat = self._signature.ragged or self._signature.batch_inputs
        self._least = program.least_rows if self._batched and not flat else 0

    def execute(self, batch: Batch) -> None:
        """Run the batch; the program computes every output, and responses get those that are wanted."""
        program = self._program
        assert program is not None
        there: Mapping[str, Sequence[DeviceTensor]] = {}
        stays: Collection[str] = ()
        kept: dict[str, torch.Tensor] = {}
        if self.device is not None:
            there = inputs_on(batch, self.device) if batch.size >= self._least else {}
            stays = staying(batch)
        arrays = batch.gather(there)
        if batch.size < self._least:
            arrays = {name: _padded(array, self._least) for name, array in arrays.items()}
        try:
            with self._without_grad, self._settings.optimizing():
                values = {self._inputs[name]: self._value(name, array) for name, array in arrays.items()}
                for name in there:
                    values[self._inputs[name]] = self._taken(name, there[name])
                results = results_of(program, program.call(values))
                for name in stays:
                    kept[name] = self._output(name, results, values, batch.size, stays=True)
                outputs = {
                    name: self._output(name, results, values, batch.size)
                    for name in batch.wanted()
                    if name not in kept
                }
                if there or kept:
                    self._wait()
        except HalimedeError:
            raise
        except Exception as error:  # PyTorch's errors have no common base
            raise pytorch_error("PyTorch execute failure", error) from error
        finally:
            if self._settings.clean_cache and self._device is not None:
                torch.cuda.empty_cache()
        batch.scatter(outputs)
        for name in kept:
            keep(batch, name, kept[name], partial(_copied, kept[name]))

    def rest(self) -> None:
        """Give back the processor's threads."""
        if self._device is None:
            end_pool()

    def close(self) -> None:
        """Let go of the program."""
        self._program = None

    def _value(self, name: str, array: Array) -> Value:
        datatype = self._datatypes[name]
        if datatype is BYTES:
            return to_strings(name, array)
        assert self._program is not None
        # what goes to a device is copied there
        tensor = from_array(array, datatype, copy=self._program.writes and self._device is None)
        return tensor if self._device is None else tensor.to(self._device)

    def _taken(self, name: str, tensors: Sequence[DeviceTensor]) -> torch.Tensor:
        """An input that is on the device already, of all requests together."""
        parts = []
        for tensor in tensors:
            try:
                part = from_dlpack(tensor.elements)
            except Exception as error:  # errors of frameworks have no common base
                raise refused(name, tensor, error) from error
            if DATATYPES.get(part.dtype) is not tensor.datatype:
                raise refused(name, tensor, f"it is {part.dtype}, not {tensor.datatype}")
            parts.append(part.reshape(-1 if name in self._signature.ragged else tensor.shape))
        if len(parts) > 1:
            return torch.cat(parts)
        assert self._program is not None
        return parts[0].clone() if self._program.writes else parts[0]

    def _wait(self) -> None:
        """Return when the device has computed everything, and reads the inputs no more."""
        if self._device is not None:
            torch.cuda.current_stream(self._device).synchronize()

    def _output(
        self,
        name: str,
        results: Mapping[Place, Any],
        values: Mapping[Place, Value],
        size: int,
        *,
        stays: bool = False,
    ) -> Any:
        """Output `name`, of which nobody else has a view, of the datatype that the configuration says.

        It is an array or, if it `stays` where it was computed, a tensor.
        """
        spec = self._signature.outputs[name]
        place = self._outputs[name]
        if place not in results:
            what = (
                "keys " + ", ".join(map(str, results)) if isinstance(place, str) else f"{len(results)} values"
            )
            raise InternalError(f"output '{name}' is not among what the model gave: {what}")
        value = results[place]
        if spec.datatype is BYTES:
            if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
                raise _wrong(spec, f"{type(value).__name__}, not a list of strings")
            return self._shaped(spec, from_strings(value), size)
        if not isinstance(value, torch.Tensor):
            raise _wrong(spec, f"{type(value).__name__}, not a tensor")
        datatype = DATATYPES.get(value.dtype)
        if datatype is not spec.datatype:
            raise _wrong(spec, f"datatype {datatype.config_name if datatype else value.dtype}")
        if value.layout is not torch.strided:
            value = value.to_dense()
        assert self._program is not None
        if (value.is_cpu or stays) and (self._program.writes or _is_view(value, values)):
            value = value.clone()
        array = value.detach().contiguous().resolve_neg() if stays else to_array(value)
        if size < self._least:
            array = array[:size]
        return self._shaped(spec, array, size)

    def _shaped(self, spec: TensorSpec, array: Any, size: int) -> Any:
        """It with the model's own dimensions, whatever dims were configured; a scalar is one element instead."""
        if spec.name in self._signature.scattered:
            return array
        if self._batched:
            strings = spec.datatype is BYTES and spec.backend_dims and array.size % size == 0
            return array.reshape(size, -1) if strings else array
        return array if array.ndim else array.reshape(1)


def _copied(tensor: torch.Tensor, rows: Rows) -> Array:
    return to_array(tensor[rows])


def _padded(array: Array, rows: int) -> Array:
    """The array with its last row repeated, so that it has that many."""
    padded = np.empty((rows, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    padded[len(array) :] = array[-1]
    return padded


def _wrong(spec: TensorSpec, found: str) -> InternalError:
    return InternalError(
        f"output '{spec.name}' of the model is of {found}, but the configuration says {spec.datatype.config_name}"
    )


def _is_view(value: torch.Tensor, inputs: Mapping[Place, Value]) -> bool:
    """Whether the output is memory of an input, which may be the client's to change later."""
    storage = value.untyped_storage().data_ptr()
    return any(
        isinstance(each, torch.Tensor) and each.untyped_storage().data_ptr() == storage
        for each in inputs.values()
    )
