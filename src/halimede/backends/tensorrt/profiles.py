"""Which optimisation profiles a model's instances use, what is served with them, and which one a batch runs in."""

from collections.abc import Mapping, Sequence

from halimede.backends.ports import Port, Ports
from halimede.backends.tensorrt.engine import Bounds, EngineDescription, EngineTensor, Profile, Shape
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError


def group_profiles(config: ModelConfig, group: str, profiles: Sequence[Profile]) -> Sequence[Profile]:
    """The profiles that `instance_group.profile` of that group names; the first one if it names none.

    Raises:
        InvalidArgumentError: the engine has no such profile.
    """
    listed = [text for each in config.instance_group if each.name == group for text in each.profile]
    if not listed:
        return profiles[:1]
    chosen = []
    for text in listed:
        if not text.isdecimal() or int(text) >= len(profiles):
            msg = (
                f"unable to load model '{config.name}': instance group '{group}' names the optimization profile "
                f"'{text}'; the engine has the profiles {', '.join(str(each.index) for each in profiles)}"
            )
            raise InvalidArgumentError(msg)
        chosen.append(profiles[int(text)])
    return chosen


def all_profiles(config: ModelConfig, profiles: Sequence[Profile]) -> Sequence[Profile]:
    """The profiles that any instance group uses, each once.

    Raises:
        InvalidArgumentError: the engine has no such profile.
    """
    used = {
        profile.index
        for group in config.instance_group
        for profile in group_profiles(config, group.name, profiles)
    }
    return [profile for profile in profiles if profile.index in used] or profiles[:1]


def ports_of(engine: EngineDescription) -> Ports:
    """What the engine takes and gives."""
    return Ports(
        {tensor.name: _port(tensor) for tensor in engine.inputs},
        {},
        {tensor.name: _port(tensor) for tensor in engine.outputs},
    )


def _port(tensor: EngineTensor) -> Port:
    element = None if tensor.refusal else tensor.datatype
    return Port(tensor.name, element, tensor.shape, tensor.refusal)


def largest_batch(engine: EngineDescription, profiles: Sequence[Profile]) -> int:
    """Rows that every input takes at once, in the profile that takes the most; 0 if the engine does not batch.

    An engine batches if the first dimension of every tensor varies, and no tensor's values are shapes, which would
    have to be the same for all requests of a batch.
    """
    tensors = [*engine.inputs, *engine.outputs]
    if any(tensor.shape[:1] != (-1,) or tensor.is_shape for tensor in tensors):
        return 0
    return max(min(bounds.largest[0] for bounds in profile.shapes.values()) for profile in profiles)


def check_batch(config: ModelConfig, engine: EngineDescription, profiles: Sequence[Profile]) -> None:
    """Hold the batch size of the configuration against the engine.

    Raises:
        InvalidArgumentError: no profile takes so many rows, or the engine has shape tensors.
    """
    asked = config.max_batch_size
    if asked == 0:
        return
    shapes = [tensor.name for tensor in engine.inputs if tensor.is_shape]
    if shapes:
        msg = (
            f"unable to load model '{config.name}': input '{shapes[0]}' is a shape tensor, whose values hold for a "
            f"whole batch; set max_batch_size: 0, and have requests bring their batch as the first dimension"
        )
        raise InvalidArgumentError(msg)
    most = largest_batch(engine, profiles)
    if most and asked > most:
        msg = (
            f"unable to load model '{config.name}': configuration specified max_batch_size {asked}, but the engine's "
            f"optimization profiles take {most} rows at most; set max_batch_size: {most}, or build the engine for more"
        )
        raise InvalidArgumentError(msg)


def check_shape_tensors(config: ModelConfig, engine: EngineDescription) -> None:
    """Hold `is_shape_tensor` of the configuration against the engine.

    Raises:
        InvalidArgumentError: they contradict each other.
    """
    known = {tensor.name: tensor.is_shape for tensor in engine.inputs}
    for entry in config.input:
        is_shape = known.get(entry.name, False)
        if entry.is_shape_tensor and not is_shape:
            msg = (
                f"unable to load model '{config.name}': input '{entry.name}' is marked as a shape tensor "
                f"(is_shape_tensor), which it is not in the engine"
            )
            raise InvalidArgumentError(msg)


def pick(profiles: Sequence[Profile], shapes: Mapping[str, Shape], values: Mapping[str, Shape]) -> Profile:
    """The profile that takes these inputs and was made for the most similar ones.

    Args:
        profiles: those of the instance, at least one.
        shapes: input → its whole shape.
        values: shape tensor → its values.

    Raises:
        InvalidArgumentError: none takes them; the text says what the first one would.
    """
    fitting = [profile for profile in profiles if not _mismatches(profile, shapes, values)]
    if not fitting:
        raise InvalidArgumentError(_mismatches(profiles[0], shapes, values))
    if len(fitting) == 1:
        return fitting[0]
    return min(
        fitting,
        key=lambda profile: sum(
            profile.shapes[name].distance(shape) for name, shape in shapes.items() if name in profile.shapes
        ),
    )


def _mismatches(profile: Profile, shapes: Mapping[str, Shape], values: Mapping[str, Shape]) -> str:
    """What of the inputs the profile does not take; "" if it takes them all."""
    for what, given, bounded in (("shape", shapes, profile.shapes), ("values", values, profile.values)):
        for name, sizes in given.items():
            bounds = bounded.get(name)
            if bounds is not None and not bounds.hold(sizes):
                return f"input '{name}' has {what} {list(sizes)}, but {_words(profile, bounds, what)}"
    return ""


def _words(profile: Profile, bounds: Bounds, what: str) -> str:
    return (
        f"the engine's optimization profile {profile.index} takes {what} from {list(bounds.least)} to "
        f"{list(bounds.largest)}"
    )
