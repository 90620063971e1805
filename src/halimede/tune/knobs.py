"""What is varied: settings of models and of the server, each with its choices and what it is now."""

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from google.protobuf import text_format

from halimede.bench.errors import BenchError
from halimede.config.model_config_pb2 import ModelConfig, ModelInstanceGroup

Value = bool | int | str
Setting = Mapping[str, Value]
"""A value for each knob, by its name."""

KINDS = ("instances", "batching", "delay", "max-batch", "threads", "isolation", "provider", "front-ends")
FRONT_ENDS = "front-ends"
_TOLD = ("instances", "batching", "delay", "max-batch", "threads", "isolation")
"""Kinds whose values can be read from a completed configuration."""
DELAYS_US = (0, 100, 500, 1000, 2000, 5000, 10000)
UNSET = "unset"


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting.

    Attributes:
        name: its kind, and behind a colon the model's name unless it is the server's.
        choices: in ascending order.
        now: what it is without tuning; one of the choices.
        apply: writes a value into the model's configuration; None for the server's.
    """

    name: str
    choices: tuple[Value, ...]
    now: Value
    apply: Callable[[ModelConfig, Value], None] | None = None

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return self.name.partition(":")[0]

    @property
    def model(self) -> str:
        """The model; empty for the server."""
        return self.name.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Target:
    """A model whose settings are varied.

    Attributes:
        name: its name.
        written: its configuration as the file has it; empty if there is none.
        effective: as the server completed it.
    """

    name: str
    written: ModelConfig
    effective: ModelConfig

    def changed(self, knobs: Iterable[Knob], setting: Setting) -> ModelConfig:
        """The written configuration with the values of a setting; those that are as they were leave it alone."""
        config = ModelConfig()
        config.CopyFrom(self.written)
        own = [knob for knob in knobs if knob.model == self.name]
        setting = normalised(own, setting)
        for knob in own:
            if knob.apply is not None and setting[knob.name] != knob.now:
                knob.apply(config, setting[knob.name])
        return config

    def check(self, knobs: Iterable[Knob], setting: Setting, completed: ModelConfig) -> None:
        """Return if the values of a setting are those of the configuration that a server made of it.

        Raises:
            BenchError: completion has undone one.
        """
        own = [knob for knob in knobs if knob.model == self.name and knob.kind in _TOLD]
        setting = normalised(own, setting)
        effective = {
            knob.kind: knob.now
            for knob in knobs_of(Target(self.name, self.written, completed), 1, _TOLD, (), 1)
        }
        if not effective.get("batching", True):
            effective.pop("delay", None)
        for knob in own:
            value, found = setting[knob.name], effective.get(knob.kind, setting[knob.name])
            if found != value:
                raise BenchError(
                    f"{knob.name}={value} has no effect: the server completes the configuration to {found}"
                )

    def text(self, knobs: Iterable[Knob], setting: Setting) -> str:
        """The whole `config.pbtxt` with the values of a setting."""
        return text_format.MessageToString(self.changed(knobs, setting))

    def lines(self, knobs: Sequence[Knob], setting: Setting) -> str:
        """The parts of `config.pbtxt` that differ from the written ones; empty if none does."""
        config = self.changed(knobs, setting)
        fields = [field.name for field, _ in config.ListFields()]
        parts = [part(config, name) for name in fields if part(config, name) != part(self.written, name)]
        removed = [field.name for field, _ in self.written.ListFields() if field.name not in fields]
        return "".join([*(f"# without {name}\n" for name in removed), *parts])


def part(config: ModelConfig, field: str) -> str:
    """One field of a configuration as text."""
    one = ModelConfig()
    one.CopyFrom(config)
    for other, _ in config.ListFields():
        if other.name != field:
            one.ClearField(other.name)
    return text_format.MessageToString(one)


def knobs_of(
    target: Target, cores: int, kinds: Sequence[str], providers: Sequence[str], most_batch: int
) -> list[Knob]:
    """What can be varied of a model: only settings that it has a use for."""
    effective, name = target.effective, target.name
    if effective.HasField("ensemble_scheduling"):
        return []
    found = [_instances(effective, cores)]
    if effective.max_batch_size > 0 and not effective.HasField("sequence_batching"):
        found += _batching(target, most_batch)
    backend = effective.backend or effective.platform
    onnx = backend.startswith("onnxruntime")
    if onnx:
        found.append(_threads(effective, cores))
        if len(choices := _providers(providers)) > 1:
            found.append(Knob("provider", choices, "cpu", _set_provider))
    if onnx or backend == "python":
        now = effective.parameters["isolation"].string_value if "isolation" in effective.parameters else UNSET
        usual = "process" if backend == "python" else "none"
        now = {UNSET: usual, "thread": "none"}.get(now, now)
        found.append(Knob("isolation", ("none", "process"), now, _set_isolation))
    return [
        Knob(f"{knob.name}:{name}", knob.choices, knob.now, knob.apply)
        for knob in found
        if knob.name in kinds
    ]


def front_ends(cores: int) -> Knob:
    """The server's processes that hold connections."""
    return Knob(FRONT_ENDS, tuple(sorted({1, 2, cores})), 1)


def check_kinds(kinds: Iterable[str]) -> None:
    """Return if all these can be varied.

    Raises:
        BenchError: one cannot.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise BenchError(f"'{kind}' cannot be varied; what can is {', '.join(KINDS)}")


def _instances(config: ModelConfig, cores: int) -> Knob:
    now = max([group.count for group in config.instance_group] or [1]) or 1
    choices = sorted({1, 2, cores, 2 * cores, now})
    return Knob("instances", tuple(choices), now, _set_instances)


def _set_instances(config: ModelConfig, value: Value) -> None:
    if not config.instance_group:
        config.instance_group.add(kind=ModelInstanceGroup.KIND_AUTO)
    for group in config.instance_group:
        group.count = int(value)


def _batching(target: Target, most: int) -> list[Knob]:
    config = target.effective
    dynamic = config.HasField("dynamic_batching")
    delay = int(config.dynamic_batching.max_queue_delay_microseconds)
    size = config.max_batch_size
    sizes = sorted({size, *(power for power in (1 << place for place in range(11)) if 4 <= power <= most)})
    found = [
        Knob("delay", tuple(sorted({*DELAYS_US, delay})), delay, _set_delay),
        Knob("max-batch", tuple(sizes), size, _set_max_batch),
    ]
    by_model = config.backend == "python" and dynamic and not target.written.HasField("dynamic_batching")
    if by_model:  # its auto_complete_config turns batching on, whatever is written
        return found
    return [Knob("batching", (False, True), dynamic, partial(_set_batching, config)), *found]


def _set_batching(effective: ModelConfig, config: ModelConfig, value: Value) -> None:
    """Turn batching on or off; completion leaves a configuration alone that lists its tensors."""
    if value:
        config.dynamic_batching.SetInParent()
        return
    config.ClearField("dynamic_batching")
    config.max_batch_size = effective.max_batch_size
    for kind in ("input", "output"):
        if not getattr(config, kind):
            getattr(config, kind).extend(getattr(effective, kind))


def _set_delay(config: ModelConfig, value: Value) -> None:
    config.dynamic_batching.max_queue_delay_microseconds = int(value)


def _set_max_batch(config: ModelConfig, value: Value) -> None:
    config.max_batch_size = int(value)
    kept = [size for size in config.dynamic_batching.preferred_batch_size if size <= int(value)]
    if config.HasField("dynamic_batching"):
        del config.dynamic_batching.preferred_batch_size[:]
        config.dynamic_batching.preferred_batch_size.extend(kept)


def _threads(config: ModelConfig, cores: int) -> Knob:
    name = "intra_op_thread_count"
    now = int(config.parameters[name].string_value or 0) if name in config.parameters else 0
    choices = sorted({0, 1, now, *(power for power in (2, 4, 8, 16) if power < cores), cores})
    return Knob("threads", tuple(choices), now, _set_threads)


def _set_threads(config: ModelConfig, value: Value) -> None:
    config.parameters["intra_op_thread_count"].string_value = str(value)


def _set_isolation(config: ModelConfig, value: Value) -> None:
    config.parameters["isolation"].string_value = str(value)


def _providers(wanted: Sequence[str]) -> tuple[Value, ...]:
    if wanted:
        return tuple(dict.fromkeys(["cpu", *wanted]))
    return ("cpu", "openvino-backend") if importlib.util.find_spec("openvino") else ("cpu",)


def _set_provider(config: ModelConfig, value: Value) -> None:
    if value == "openvino-backend":
        config.backend = "openvino"
        config.ClearField("platform")
        config.default_model_filename = config.default_model_filename or "model.onnx"
        config.parameters.pop("intra_op_thread_count", None)
        return
    if value in ("cuda", "tensorrt"):
        if not config.instance_group:
            config.instance_group.add(count=1)
        for group in config.instance_group:
            group.kind = ModelInstanceGroup.KIND_GPU
    if value == "tensorrt":
        config.optimization.execution_accelerators.gpu_execution_accelerator.add(name="tensorrt")
    elif value == "openvino":
        config.optimization.execution_accelerators.cpu_execution_accelerator.add(name="openvino")


def now(knobs: Iterable[Knob]) -> dict[str, Value]:
    """The setting without tuning."""
    return {knob.name: knob.now for knob in knobs}


def first_guesses(knobs: Sequence[Knob]) -> list[dict[str, Value]]:
    """Settings that often serve well, to begin with: dynamic batching; an instance with one thread for each core."""
    base = now(knobs)
    batching = {knob.name: True for knob in knobs if knob.kind == "batching"}
    cores = max([int(knob.choices[-1]) // 2 for knob in knobs if knob.kind == "instances"] or [1])
    spread: dict[str, Value] = {}
    for knob in knobs:
        if knob.kind == "instances" and cores in knob.choices:
            spread[knob.name] = cores
        elif knob.kind == "threads":
            spread[knob.name] = 1
    guesses = [{**base, **part} for part in (batching, spread, {**batching, **spread})]
    return [guess for place, guess in enumerate(guesses) if guess != base and guess not in guesses[:place]]


def normalised(knobs: Sequence[Knob], setting: Setting) -> dict[str, Value]:
    """The setting in which knobs without effect are as they were, so that equal servers are measured once."""
    found = dict(setting)
    for knob in knobs:
        batching = f"batching:{knob.model}"
        if knob.kind == "delay" and not found.get(batching, True):
            found[knob.name] = knob.now
        if knob.kind == "max-batch" and not found.get(batching, True):
            found[knob.name] = knob.now
        if knob.kind == "threads" and found.get(f"provider:{knob.model}") == "openvino-backend":
            found[knob.name] = knob.now
    return found
