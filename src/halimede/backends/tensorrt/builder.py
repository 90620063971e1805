"""Building a TensorRT engine from an ONNX file, as `trtexec` does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorrt

from halimede.backends.tensorrt.engine import Bounds, Shape
from halimede.backends.tensorrt.log import MESSAGES
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, UnsupportedError


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """How to build an engine.

    Attributes:
        profiles: for each optimisation profile, input → sizes of its dimensions, or values of a shape tensor.
        precisions: those that layers may compute in besides FP32: ``FP16``, ``BF16``, ``INT8``.
        workspace_mib: memory that a layer may use while it runs; None for as much as the GPU has.
        optimization_level: 0 (quick to build) to 5 (quick to run); None for TensorRT's default.
        version_compatible: the engine runs in later versions of TensorRT too.
        timing_cache: what earlier builds measured; empty for nothing.
    """

    profiles: Sequence[Mapping[str, Bounds]] = ()
    precisions: Sequence[str] = ()
    workspace_mib: int | None = None
    optimization_level: int | None = None
    version_compatible: bool = False
    timing_cache: bytes = b""


@dataclass(frozen=True, slots=True)
class Built:
    """An engine.

    Attributes:
        plan: what goes into `model.plan`.
        timing_cache: what the next build need not measure again.
    """

    plan: bytes = field(repr=False)
    timing_cache: bytes = field(repr=False)


def build(onnx: Path, settings: BuildSettings) -> Built:
    """The engine of an ONNX file, for the GPU that is in use. Takes from seconds to many minutes.

    Raises:
        HalimedeError: the file, the shapes or the settings do not do; the text says what TensorRT says.
    """
    MESSAGES.reason()
    try:
        builder = tensorrt.Builder(MESSAGES)
    except TypeError as error:  # how the bindings tell that there is none
        raise _failure("cannot start: it needs an NVIDIA GPU and its driver") from error
    network = builder.create_network(0)
    _parse(onnx, network)
    config = builder.create_builder_config()
    _configure(config, settings)
    _add_profiles(builder, network, config, settings.profiles)
    cache = config.create_timing_cache(settings.timing_cache)
    if not config.set_timing_cache(cache, ignore_mismatch=False):
        raise _failure("cannot use the timing cache, which may be from another GPU or version; remove it")
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise _failure(f"cannot build an engine of {onnx}")
    return Built(bytes(plan), bytes(config.get_timing_cache().serialize()))


def _parse(onnx: Path, network: Any) -> None:
    parser = tensorrt.OnnxParser(network, MESSAGES)
    if parser.parse_from_file(str(onnx)):
        return
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    told = "; ".join(_told(error) for error in errors[:3]) or MESSAGES.reason() or "it does not say why"
    raise InvalidArgumentError(f"TensorRT cannot read {onnx}: {told}")


def _told(error: Any) -> str:
    """An error of the parser in words, with the node where it is in one."""
    node = error.node_name()
    return f"{error.desc()} (node '{node}', {error.node_operator()})" if node else str(error.desc())


def _configure(config: Any, settings: BuildSettings) -> None:
    flags = tensorrt.BuilderFlag
    for precision in settings.precisions:
        flag = getattr(flags, precision, None)
        if flag is None:
            msg = (
                f"TensorRT {tensorrt.__version__} has no switch for {precision}: its engines compute in the datatypes "
                f"that the ONNX file has. Convert the file, or use TensorRT 10"
            )
            raise UnsupportedError(msg)
        config.set_flag(flag)
    if settings.version_compatible:
        config.set_flag(flags.VERSION_COMPATIBLE)
    if settings.workspace_mib is not None:
        config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, settings.workspace_mib << 20)
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level


def _add_profiles(builder: Any, network: Any, config: Any, profiles: Sequence[Mapping[str, Bounds]]) -> None:
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    named = {tensor.name: tuple(tensor.shape) for tensor in inputs}
    for bounds in profiles:
        for name in bounds:
            if name not in named:
                msg = f"there is no input '{name}' in the ONNX file; its inputs are {_listed(named)}"
                raise InvalidArgumentError(msg)
    for tensor in inputs:
        needed = -1 in tuple(tensor.shape) or tensor.is_shape_tensor
        if needed and not (profiles and all(tensor.name in bounds for bounds in profiles)):
            raise _missing_shapes(tensor)
    for number, bounds in enumerate(profiles):
        profile = builder.create_optimization_profile()
        for tensor in inputs:
            if tensor.name in bounds:
                _set(profile, tensor, bounds[tensor.name])
        if config.add_optimization_profile(profile) < 0:
            raise _failure(f"cannot use the shapes of the optimization profile {number}")


def _set(profile: Any, tensor: Any, bounds: Bounds) -> None:
    setter = profile.set_shape_input if tensor.is_shape_tensor else profile.set_shape
    try:
        setter(tensor.name, bounds.least, bounds.best, bounds.largest)
    except (TypeError, ValueError) as error:
        msg = (
            f"input '{tensor.name}' has the shape {list(tensor.shape)} in the ONNX file, which does not go with "
            f"{list(bounds.least)}, {list(bounds.best)} and {list(bounds.largest)}: {error}"
        )
        raise InvalidArgumentError(msg) from error


def _missing_shapes(tensor: Any) -> HalimedeError:
    shape = [size if size >= 0 else 1 for size in tensor.shape] or [1]
    example = "x".join(map(str, shape))
    what = "is a shape tensor" if tensor.is_shape_tensor else f"has the shape {list(tensor.shape)}"
    return InvalidArgumentError(
        f"input '{tensor.name}' {what}, so every profile needs its least, best and largest one: say, for example, "
        f"--min-shapes={tensor.name}:{example} --opt-shapes={tensor.name}:{example} "
        f"--max-shapes={tensor.name}:{example}"
    )


def _listed(named: Mapping[str, Shape]) -> str:
    return ", ".join(f"'{name}' {list(shape)}" for name, shape in named.items())


def _failure(what: str) -> InternalError:
    said = MESSAGES.reason()
    return InternalError(f"TensorRT {tensorrt.__version__} {what}" + (f": {said}" if said else ""))
