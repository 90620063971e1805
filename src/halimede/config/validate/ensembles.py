"""Ensembles, as far as one configuration tells: steps, and how tensors flow between them.

Whether the models of the steps exist and fit together is for whoever knows those models.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from halimede.config.autofill import ENSEMBLE
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.misspelt_tensors import find_corrections
from halimede.config.validate.problem import Problem

MAX_STEPS: Final = 1024
"""Steps of an ensemble."""


def ensemble_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of an ensemble, or of a model that is half of one."""
    name = config.name
    if not config.HasField("ensemble_scheduling"):
        if config.platform == ENSEMBLE:
            message = f"ensemble scheduling must be set for ensemble {name} whose platform is ensemble"
            yield Problem(name, "ensemble_scheduling", message, "ensemble_scheduling { step [ ... ] }")
        return
    if config.platform != ENSEMBLE:
        message = f"ensemble scheduling cannot be set for model '{name}' whose platform is not ensemble"
        yield Problem(name, "ensemble_scheduling", message, 'platform: "ensemble"')
    for field, message in (
        ("instance_group", f"instance group should not be specified for ensemble '{name}'"),
        ("optimization", f"optimization should not be specified for ensemble '{name}'"),
        ("model_warmup", f"model_warmup can not be specified for ensemble '{name}'"),
    ):
        if config.HasField(field) if field == "optimization" else len(getattr(config, field)) > 0:
            yield Problem(name, field, message, f"remove {field}")
    count = len(config.ensemble_scheduling.step)
    if count > MAX_STEPS:
        message = f"ensemble '{name}' has {count} steps, and the maximum is {MAX_STEPS}"
        yield Problem(name, "ensemble_scheduling.step", message, "move steps into an ensemble that is a step")
        return
    steps = list(_step_problems(config))
    yield from steps
    if not any(problem.where.endswith(("step", "input_map", "output_map")) for problem in steps):
        yield from _flow_problems(config)


def _step_problems(config: ModelConfig) -> Iterator[Problem]:
    name = config.name
    if not config.ensemble_scheduling.step:
        where = "ensemble_scheduling.step"
        yield Problem(name, where, f"must specify 'step' for ensemble '{name}'", "step [ { ... } ]")
    written: set[str] = set()
    for index, step in enumerate(config.ensemble_scheduling.step):
        where = f"ensemble_scheduling.step[{index}]"
        for field, fix in (
            ("model_name", 'model_name: "..."'),
            ("input_map", 'input_map { key: "..." value: "..." }'),
            ("output_map", 'output_map { key: "..." value: "..." }'),
        ):
            if not getattr(step, field):
                message = f"must specify '{field}' in step {index} of ensemble '{name}'"
                yield Problem(name, f"{where}.{field}", message, fix)
        for output in sorted(step.output_map):
            tensor = step.output_map[output]
            if tensor in written:
                message = (
                    f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble "
                    f"'{name}' step {index}"
                )
                fix = f'output_map {{ key: "{output}" value: "{tensor}_{index}" }}'
                yield Problem(name, f'{where}.output_map["{output}"]', message, fix)
            written.add(tensor)


def _flow_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of the way from the ensemble's inputs through its steps to its outputs.

    Where a name is probably misspelt, all that follows from it is one problem, at the place to correct.
    """
    corrections = find_corrections(config)
    told: set[str] = set()
    for problem, tensors in _flow_faults(config):
        correction = next((corrections[each] for each in tensors if each in corrections), None)
        if correction is None:
            yield problem
        elif correction.where not in told:
            told.add(correction.where)
            message = f"{problem.message}; {correction.describe(config)}"
            yield replace(problem, where=correction.where, message=message, fix=correction.fix)


def _flow_faults(config: ModelConfig) -> Iterator[tuple[Problem, list[str]]]:
    """Each with the tensors whose names may be the cause."""
    name = config.name
    steps = config.ensemble_scheduling.step
    reads = [sorted(set(step.input_map.values())) for step in steps]
    writers = {tensor: index for index, step in enumerate(steps) for tensor in step.output_map.values()}
    read = {tensor for tensors in reads for tensor in tensors}
    inputs = {entry.name for entry in config.input}
    outputs = {entry.name for entry in config.output}
    for index, entry in enumerate(config.input):
        if entry.name not in read:
            message = f"ensemble input '{entry.name}' for ensemble {name}' is not used"
            fix = f'input_map {{ key: "..." value: "{entry.name}" }}'
            yield Problem(name, f"input[{index}].name", message, fix), [entry.name]
    ready = _reachable(config, inputs)
    missing_of = [next((tensor for tensor in tensors if tensor not in ready), "") for tensors in reads]
    for index, output in enumerate(config.output):
        where, tensor = f"output[{index}].name", output.name
        fix = f'output_map {{ key: "..." value: "{tensor}" }}'
        if tensor not in writers and tensor not in read:
            message = f"ensemble output '{tensor}' for ensemble {name}' is not used"
            yield Problem(name, where, message, fix), [tensor]
        elif tensor not in ready:
            missing = missing_of[writers[tensor]] if tensor in writers else ""
            reason = (
                f": at least one of its depending tensors, '{missing}', is not connected" if missing else ""
            )
            if missing:
                fix = f'output_map {{ key: "..." value: "{missing}" }}'
            message = f"output '{tensor}' for ensemble '{name}' is not written{reason}"
            yield Problem(name, where, message, fix), [tensor, *_behind(tensor, writers, reads)]
    for index, step in enumerate(steps):
        for key in sorted(step.output_map):
            tensor = step.output_map[key]
            if tensor not in outputs and (tensor not in read or tensor not in ready):
                where = f'ensemble_scheduling.step[{index}].output_map["{key}"]'
                message = f"ensemble tensor '{tensor}' is unused in ensemble '{name}'"
                fix = f'remove output_map {{ key: "{key}" value: "{tensor}" }}'
                yield Problem(name, where, message, fix), [tensor, *_behind(tensor, writers, reads)]


def _behind(tensor: str, writers: Mapping[str, int], reads: Sequence[Sequence[str]]) -> list[str]:
    """The tensors that a tensor is made from, directly or not.

    Args:
        tensor: the tensor.
        writers: tensor → the step that makes it.
        reads: the tensors that each step is made from, sorted.
    """
    found: dict[str, None] = {}
    taken: set[int] = set()
    waiting = [tensor]
    while waiting:
        step = writers.get(waiting.pop())
        if step is None or step in taken:
            continue
        taken.add(step)
        for source in reads[step]:
            if source not in found:
                found[source] = None
                waiting.append(source)
    return list(found)


def _reachable(config: ModelConfig, inputs: set[str]) -> set[str]:
    """The tensors that will have content: inputs, and outputs of the steps that only need such tensors."""
    steps = config.ensemble_scheduling.step
    missing = [set(step.input_map.values()) for step in steps]
    readers: dict[str, list[int]] = {}
    for index, tensors in enumerate(missing):
        for tensor in tensors:
            readers.setdefault(tensor, []).append(index)
    ready = set(inputs)
    arrived = list(inputs)
    while arrived:
        tensor = arrived.pop()
        for index in readers.get(tensor, ()):
            missing[index].discard(tensor)
            if not missing[index]:
                new = set(steps[index].output_map.values()) - ready
                ready |= new
                arrived.extend(new)
    return ready
