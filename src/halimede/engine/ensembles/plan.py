"""An ensemble's plan, made when it is loaded: which step reads what, and from where."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from halimede.config.model_config_pb2 import ModelConfig, ModelEnsembling, ModelInput, ModelOutput
from halimede.config.signature import Signature
from halimede.core.errors import InvalidArgumentError
from halimede.engine.ensembles.checks import SeenTensor, check_step, see
from halimede.engine.ensembles.routes import PlannedStep, PlannedTensor, Route, build_route

Describe = Callable[[str, int], ModelConfig]
"""``describe(name, version)`` gives the final configuration of a loaded model, for -1 of its highest ready version, or
raises the error for which the ensemble is not loaded."""

_MAX_ROUTES = 64
"""Routes that are kept; clients may ask for the outputs in any combination."""


class EnsemblePlan:
    """How tensors flow through an ensemble.

    Attributes:
        name: the ensemble.
        signature: what it takes and gives; it is decoupled if any of its steps is.
        steps: the steps, each behind those that it reads from.
        max_inflight: requests that each step may have in flight, of all requests to the ensemble; 0 for any number.
    """

    def __init__(
        self,
        name: str,
        signature: Signature,
        steps: Sequence[PlannedStep],
        tensors: dict[str, PlannedTensor],
        max_inflight: int = 0,
    ) -> None:
        self.name = name
        self.signature = signature
        self.steps = tuple(steps)
        self.max_inflight = max_inflight
        self._tensors = tensors
        self._routes: dict[tuple[str, ...], Route] = {}
        self.route(())

    @classmethod
    def from_config(cls, config: ModelConfig, describe: Describe) -> "EnsemblePlan":
        """The plan of an ensemble with a normalised and validated configuration.

        Raises:
            InvalidArgumentError: its models do not fit together; the text is Triton's.
            HalimedeError: what `describe` raises.
        """
        seen: dict[str, SeenTensor] = {}
        for entry in chain[ModelInput | ModelOutput](config.input, config.output):
            dims = entry.reshape.shape if entry.HasField("reshape") else entry.dims
            seen.setdefault(entry.name, see(config.name, entry, dims, config.max_batch_size))
        steps: list[PlannedStep] = []
        for number, step in enumerate(config.ensemble_scheduling.step):
            if step.model_version == 0:
                msg = (
                    f"ensemble '{config.name}' depends on '{step.model_name}' whose required version 0 is not loaded. "
                    f"model_version must be given in each step; -1 stands for the highest version that is ready"
                )
                raise InvalidArgumentError(msg)
            model = describe(step.model_name, step.model_version)
            check_step(config, step, model, seen)
            steps.append(_planned(number, step, model))
        signature = Signature.from_config(config)
        ordered, tensors = _ordered(config.name, steps, signature)
        signature = replace(signature, decoupled=any(step.decoupled for step in ordered))
        return cls(config.name, signature, ordered, tensors, config.ensemble_scheduling.max_inflight_requests)

    def route(self, outputs: tuple[str, ...]) -> Route:
        """The route to those outputs of the ensemble, to all if there are none."""
        route = self._routes.get(outputs)
        if route is None:
            specs = self.signature.outputs
            wanted = [spec for name, spec in specs.items() if not outputs or name in outputs]
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            route = self._routes[outputs] = build_route(
                self.steps,
                self._tensors,
                list(self.signature.inputs),
                wanted,
                self.signature.max_batch_size > 0,
            )
        return route

    def producer(self, output: str) -> tuple[PlannedStep, str] | None:
        """The step that writes an output of the ensemble, and which of its outputs that is; None for an input."""
        for step in self.steps:
            for name, tensor in step.outputs.items():
                if tensor == output:
                    return step, name
        return None


def _planned(number: int, step: ModelEnsembling.Step, model: ModelConfig) -> PlannedStep:
    dims = {entry.name: tuple(entry.dims) for entry in model.input}
    return PlannedStep(
        number,
        step.model_name,
        step.model_version,
        model.model_transaction_policy.decoupled,
        model.max_batch_size > 0,
        {entry.name: step.input_map[entry.name] for entry in model.input if entry.name in step.input_map},
        {entry.name: step.output_map[entry.name] for entry in model.output if entry.name in step.output_map},
        {name: dims[name] for name in step.input_map},
    )


def _ordered(
    name: str, steps: Sequence[PlannedStep], signature: Signature
) -> tuple[list[PlannedStep], dict[str, PlannedTensor]]:
    """The steps that can run, each behind those that it reads from, and the tensors that there will be.

    Raises:
        InvalidArgumentError: an output is not among them, or tensors are joined that have nothing in common.
    """
    batched = signature.max_batch_size > 0
    tensors = {tensor: PlannedTensor(tensor, batched) for tensor in signature.inputs}
    ordered: list[PlannedStep] = []
    waiting = {step.number: step for step in steps}
    awaited = {step.number: set(step.inputs.values()) - tensors.keys() for step in steps}
    readers: dict[str, list[int]] = {}
    for number, names in awaited.items():
        for tensor in names:
            readers.setdefault(tensor, []).append(number)
    runnable = [step for step in steps if not awaited[step.number]]
    while runnable:
        for step in runnable:
            del waiting[step.number]
        ordered += runnable
        written: list[str] = []
        for step in runnable:
            origin = _joined(name, step.model_name, [tensors[tensor] for tensor in step.inputs.values()])
            if step.decoupled:
                origin = (*origin, step.number)
            for tensor in step.outputs.values():
                if tensor in signature.inputs:
                    msg = (
                        f"in ensemble {name}, ensemble tensor {tensor} is an input of the ensemble, and step of model "
                        f"'{step.model_name}' writes it too; give the step's output another name"
                    )
                    raise InvalidArgumentError(msg)
                tensors[tensor] = PlannedTensor(tensor, step.batched, origin)
                written.append(tensor)
        complete: list[int] = []
        for tensor in written:
            for number in readers.pop(tensor, ()):
                awaited[number].discard(tensor)
                if not awaited[number]:
                    complete.append(number)
        runnable = [waiting[number] for number in sorted(complete)]
    if not signature.outputs:
        raise InvalidArgumentError(f"ensemble '{name}' has no outputs, it needs at least one")
    for output in signature.outputs:
        if output not in tensors:
            missing = [
                tensor
                for step in waiting.values()
                if output in step.outputs.values()
                for tensor in step.inputs.values()
                if tensor not in tensors
            ]
            msg = f"output '{output}' for ensemble '{name}' is not written"
            if missing:
                msg += f": at least one of its depending tensors, '{missing[0]}', is not connected"
            raise InvalidArgumentError(msg)
    _joined(name, name, [tensors[output] for output in signature.outputs])
    return ordered, tensors


def _joined(ensemble: str, model: str, tensors: Sequence[PlannedTensor]) -> tuple[int, ...]:
    """The origin of what is made of these tensors.

    Raises:
        InvalidArgumentError: they come from decoupled steps neither of which is behind the other.
    """
    longest = max((tensor.origin for tensor in tensors), key=len)
    if any(longest[: len(tensor.origin)] != tensor.origin for tensor in tensors):
        msg = (
            f"in ensemble {ensemble}, step of model '{model}' receives inputs originated from different "
            f"decoupled models"
        )
        raise InvalidArgumentError(msg)
    return longest
