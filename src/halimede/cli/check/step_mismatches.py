"""Every way in which one step of an ensemble does not fit its model, each with what would fix it."""

from collections.abc import Iterator
from difflib import get_close_matches

from google.protobuf.text_format import MessageToString

from halimede.config.model_config_pb2 import ModelConfig, ModelEnsembling
from halimede.config.validate import Problem
from halimede.core.errors import HalimedeError
from halimede.engine.ensembles.checks import SeenTensor, check_step

_MAPS = (("input", "input_map"), ("output", "output_map"))
_UNKNOWN = "..."
"""In a fix: a tensor that the user has to name."""


def step_mismatches(
    ensemble: ModelConfig, index: int, model: ModelConfig, seen: dict[str, SeenTensor]
) -> Iterator[Problem]:
    """The problems of a step, told one at a time by `check_step`: each is corrected in a copy, which is asked again.

    Args:
        ensemble: the ensemble's configuration.
        index: which step.
        model: the configuration of the step's model.
        seen: ensemble tensor → as it was first seen; those that the step adds are added.
    """
    whole = ModelConfig()
    whole.CopyFrom(ensemble)
    step = whole.ensemble_scheduling.step[index]
    where = f"ensemble_scheduling.step[{index}]"
    if 0 < model.max_batch_size < ensemble.max_batch_size:
        message = _refusal(whole, step, model, {})
        yield Problem(whole.name, "max_batch_size", message, f"max_batch_size: {model.max_batch_size}")
        whole.max_batch_size = model.max_batch_size
    for side, map_name in _MAPS:
        names = {entry.name: entry for entry in getattr(model, side)}
        tensors = getattr(step, map_name)
        for key in sorted(set(tensors) - set(names)):
            message = _refusal(whole, step, model, {})
            free = [name for name in names if name not in tensors]
            close = get_close_matches(key, free, 1) or (free if len(free) == 1 else [])
            tensor = tensors.pop(key)
            fix = f'remove {map_name} {{ key: "{key}" value: "{tensor}" }}'
            if close:
                tensors[close[0]] = tensor
                fix = f'{map_name} {{ key: "{close[0]}" value: "{tensor}" }}'
            yield Problem(whole.name, f'{where}.{map_name}["{key}"]', message, fix)
        if side == "input":
            for name, entry in names.items():
                if name not in tensors and not getattr(entry, "optional", False):
                    message = _refusal(whole, step, model, {})
                    source = name if name in seen else (get_close_matches(name, seen, 1) or [_UNKNOWN])[0]
                    tensors[name] = source
                    fix = f'{map_name} {{ key: "{name}" value: "{source}" }}'
                    yield Problem(whole.name, f"{where}.{map_name}", message, fix)
    yield from _unlike(whole, where, step, model, seen)


def _unlike(
    ensemble: ModelConfig,
    where: str,
    step: ModelEnsembling.Step,
    model: ModelConfig,
    seen: dict[str, SeenTensor],
) -> Iterator[Problem]:
    """Tensors that the model sees otherwise than what is connected to it; one at a time is left in the step."""
    for side, map_name in _MAPS:
        entries = {entry.name: entry for entry in getattr(model, side)}
        for key, tensor in sorted(getattr(step, map_name).items()):
            message = _refusal(ensemble, _only(step, map_name, key), _required(model, side, key), seen)
            if not message or tensor == _UNKNOWN:
                continue
            place, fix = f'{where}.{map_name}["{key}"]', ""
            for own_side, _ in _MAPS:
                for number, own in enumerate(getattr(ensemble, own_side)):
                    if own.name == tensor and (model.max_batch_size > 0) == (ensemble.max_batch_size > 0):
                        right = type(own)(
                            name=tensor, data_type=entries[key].data_type, dims=entries[key].dims
                        )
                        text = MessageToString(right, as_one_line=True, use_short_repeated_primitives=True)
                        place, fix = f"{own_side}[{number}]", f"{own_side} {{ {text.strip()} }}"
            yield Problem(ensemble.name, place, message, fix)


def _only(step: ModelEnsembling.Step, map_name: str, key: str) -> ModelEnsembling.Step:
    """The step with that entry alone."""
    alone = ModelEnsembling.Step(model_name=step.model_name, model_version=step.model_version)
    getattr(alone, map_name)[key] = getattr(step, map_name)[key]
    return alone


def _required(model: ModelConfig, side: str, key: str) -> ModelConfig:
    """The model with that tensor alone."""
    alone = ModelConfig(name=model.name, max_batch_size=model.max_batch_size)
    getattr(alone, side).extend(entry for entry in getattr(model, side) if entry.name == key)
    return alone


def _refusal(
    ensemble: ModelConfig, step: ModelEnsembling.Step, model: ModelConfig, seen: dict[str, SeenTensor]
) -> str:
    try:
        check_step(ensemble, step, model, seen)
    except HalimedeError as error:
        return error.message
    return ""
