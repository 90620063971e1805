"""Whether the models of an ensemble fit together: its tensors, as each model sees them. The texts are Triton's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from halimede.config.model_config_pb2 import DataType, ModelConfig, ModelEnsembling, ModelInput, ModelOutput
from halimede.core.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class SeenTensor:
    """An ensemble tensor as one model sees it.

    Attributes:
        model: the model, or the ensemble itself.
        data_type: a number of `DataType`.
        dims: its shape without batch dimension, -1 for a variable size.
        batched: the model adds a batch dimension.
    """

    model: str
    data_type: DataType
    dims: tuple[int, ...]
    batched: bool

    @property
    def full_dims(self) -> tuple[int, ...]:
        """The shape, with -1 for the batch dimension where there is one."""
        return (-1, *self.dims) if self.batched else self.dims


def check_step(
    ensemble: ModelConfig, step: ModelEnsembling.Step, model: ModelConfig, seen: dict[str, SeenTensor]
) -> None:
    """Hold one step against its model and against what is known of the ensemble's tensors.

    Args:
        ensemble: the ensemble's configuration.
        step: the step.
        model: the configuration of the step's model.
        seen: ensemble tensor → as it was first seen; those that the step adds are added.

    Raises:
        InvalidArgumentError: they do not fit.
    """
    if 0 < model.max_batch_size < ensemble.max_batch_size:
        msg = (
            f"ensemble {ensemble.name} allows maximum batch size {ensemble.max_batch_size}, but it contains model "
            f"{step.model_name} which only allows maximum batch size to be {model.max_batch_size}"
        )
        raise InvalidArgumentError(msg)
    start = f"in ensemble {ensemble.name}, "
    inputs = {entry.name: entry for entry in model.input}
    outputs = {entry.name: entry for entry in model.output}
    for name, tensor in sorted(step.input_map.items()):
        if name not in inputs:
            msg = (
                f"ensemble tensor {tensor} is mapping to non-existing input {name} in model {step.model_name}"
            )
            raise InvalidArgumentError(start + msg + _known("inputs", inputs))
    for name, entry in inputs.items():
        if name not in step.input_map and not entry.optional:
            msg = f"input {name} in model {step.model_name} is not mapped to any ensemble tensors"
            raise InvalidArgumentError(start + msg)
    for name, tensor in sorted(step.output_map.items()):
        if name not in outputs:
            msg = f"ensemble tensor {tensor} is mapped from non-existing output {name} in model {step.model_name}"
            raise InvalidArgumentError(start + msg + _known("outputs", outputs))
    for mapped, entries in ((step.input_map, inputs), (step.output_map, outputs)):
        for name in sorted(mapped):
            as_seen = see(step.model_name, entries[name], entries[name].dims, model.max_batch_size)
            _check_alike(f"{start}ensemble tensor {mapped[name]}: ", seen, mapped[name], as_seen)


def see(model: str, entry: ModelInput | ModelOutput, dims: Iterable[int], max_batch_size: int) -> SeenTensor:
    """A tensor of a model that has those dims for whoever is connected to it."""
    return SeenTensor(model, entry.data_type, tuple(dims), max_batch_size > 0)


def _check_alike(start: str, seen: dict[str, SeenTensor], name: str, now: SeenTensor) -> None:
    """Is the tensor, as a model sees it now, what it was before?"""
    first = seen.setdefault(name, now)
    if first.data_type != now.data_type:
        msg = (
            f"{start}inconsistent data type: {DataType.Name(first.data_type)} is inferred from model "
            f"{first.model} while {DataType.Name(now.data_type)} is inferred from model {now.model}"
        )
        raise InvalidArgumentError(msg)
    # A batch dimension that one of them counts as its own and the other has in its dims is the same all the same.
    if not (_fit(first.dims, now.dims) or _fit(first.full_dims, now.full_dims)):
        msg = (
            f"{start}inconsistent shape: {_dims(first.full_dims)} is inferred from model {first.model} "
            f"while {_dims(now.full_dims)} is inferred from model {now.model}"
        )
        raise InvalidArgumentError(msg)


def _fit(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _dims(dims: Sequence[int]) -> str:
    return "[" + ",".join(str(dim) for dim in dims) + "]"


def _known(kind: str, names: Iterable[str]) -> str:
    return f". Its {kind} are [{', '.join(names)}]"
