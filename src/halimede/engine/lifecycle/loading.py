"""Loading one version of a model: from files and configuration to instances that have run once.

Blocks, so the lifecycle calls it off the event loop. What fails gives back all that it took.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
from typing import NamedTuple

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.file_looks import note_of_pointers
from halimede.backends.isolation import ISOLATION, runs_in_process
from halimede.backends.placement import Placement, placement
from halimede.backends.registry import LANGUAGE_BACKENDS, PYTHON, backend_class, backend_name
from halimede.config.model_config_pb2 import ModelConfig, ModelInstanceGroup
from halimede.config.normalise import normalise
from halimede.config.signature import Signature
from halimede.config.validate import validate
from halimede.config.validate.instances import instance_problems
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    OutOfMemoryError,
)
from halimede.core.host_policies import HostPolicy, policy_of
from halimede.core.memory import trim_memory
from halimede.core.out_of_memory import is_out_of_memory, lacks_memory
from halimede.engine.lifecycle.warmup import WarmUpPace, warm_up
from halimede.engine.loaded_version import LoadedInstance, LoadedVersion
from halimede.engine.settings import EngineSettings
from halimede.engine.statistics import FIRST_RESPONSE_BOUNDS_MS, ModelStatistics
from halimede.engine.text_statistics import TextStatistics
from halimede.repository.labels import read_labels
from halimede.workers.host import WorkerHost
from halimede.workers.in_server.model import ServerPythonModel
from halimede.workers.isolated_model import IsolatedModel
from halimede.workers.python_model import PythonModel

logger = logging.getLogger("halimede")

_PYTHON_RUNTIME = "libtriton_python.so"
"""The only `runtime` that a Python model may name."""

_SIDE_BY_SIDE = "TRITON_PARALLEL_INSTANCE_LOADING"
"""The environment variable that says whether instances are made at once: 0 or 1; otherwise the backend says it."""

_MAX_SIDE_BY_SIDE = 16


def load_version(
    source: ModelSource,
    settings: EngineSettings,
    workers: WorkerHost,
    on_long: Callable[[], None] = lambda: None,
) -> LoadedVersion:
    """The version, loaded and warmed up. Blocks.

    Args:
        source: where it comes from.
        settings: of the engine.
        workers: where instances run that have processes of their own.
        on_long: called once if its warm-up takes long.

    Raises:
        OutOfMemoryError: there is not enough memory for it, or not enough room on a disk.
        HalimedeError: it cannot be loaded; nothing is left of any attempt.
    """
    began = monotonic_ns()
    config = ModelConfig()
    config.CopyFrom(source.config)
    source = replace(source, config=config)
    try:
        with ExitStack() as undo:
            undo.callback(trim_memory)
            options = BackendOptions(
                settings.backend_settings(config.backend),
                _cpu_threads(config, settings),
                settings.gpus,
                settings.verbose,
            )
            placed = placement(config, settings.gpus)
            refuse_places(config, placed)
            backend = open_backend(source, options, workers, settings.backend_directory)
            undo.callback(backend.close)
            if settings.auto_complete_config:
                backend.complete_config()
                normalise(config, placed.gpus)
            validate(config, placed.gpus, placed.missing)
            backend.check_config()
            signature = Signature.from_config(config)
            specs = instance_specs(config, settings.host_policies)
            _tell_unknown_policies(config, settings)
            statistics = ModelStatistics(first_response_bounds(config))
            if isinstance(backend, IsolatedModel) and backend_name(config) in LANGUAGE_BACKENDS:
                statistics.texts = TextStatistics()
            created = create_instances(backend, [wanted.spec for wanted in specs], undo)
            instances: list[LoadedInstance] = []
            pace = WarmUpPace(on_long)
            undo.callback(pace.close)
            for wanted, instance in zip(specs, created, strict=True):
                with wanted.spec.placed():
                    warm_up(source, signature, instance, wanted.spec.name, statistics, pace)
                instances.append(LoadedInstance(wanted.spec, wanted.passive, instance, wanted.limits))
            labels = {
                name: read_labels(source.directory, output.label_filename)
                for name, output in signature.outputs.items()
                if output.label_filename
            }
            pace.close()
            undo.pop_all()
        # frameworks have read the files by now, and their copies are free: as much as the weights again
        trim_memory()
    except OutOfMemoryError:
        raise
    except HalimedeError as error:
        if _is_shortage(error, source):
            raise OutOfMemoryError(error.message) from error
        if "Git LFS" not in error.message and (pointers := note_of_pointers(source.version_directory)):
            raise type(error)(f"{error.message}{pointers}") from error
        raise
    except Exception as error:
        if _is_shortage(error, source):
            raise OutOfMemoryError(f"{type(error).__name__}: {error}") from error
        logger.exception("failed to load '%s' version %d", source.name, source.version)
        pointers = note_of_pointers(source.version_directory)
        raise InternalError(f"{type(error).__name__}: {error}{pointers}") from error
    statistics.load_ns = monotonic_ns() - began
    return LoadedVersion(source, signature, backend, tuple(instances), labels, statistics)


def _is_shortage(error: Exception, source: ModelSource) -> bool:
    """Whether the version could not be loaded for want of memory: by the error's type, or by a framework's words."""
    names = (source.name, str(source.directory))
    return lacks_memory(error) or is_out_of_memory(f"{type(error).__name__}: {error}", names)


def open_backend(
    source: ModelSource, options: BackendOptions, workers: WorkerHost, directory: Path | None
) -> BackendModel:
    """The version, opened by its backend; `directory` is where backends written in Python are.

    Raises:
        HalimedeError: there is no such backend, or it refuses the model.
    """
    name = backend_name(source.config)
    if name == PYTHON:
        refuse_runtime(source, directory)
    isolated = runs_in_process(source)
    written_in_python = name != PYTHON and directory is not None and (directory / name / "model.py").is_file()
    if written_in_python or name == PYTHON:
        in_server = not isolated and ISOLATION in source.config.parameters
        model = ServerPythonModel if in_server else PythonModel
        return model(source, options, workers, directory / name if written_in_python and directory else None)
    if isolated:
        return IsolatedModel(source, options, workers)
    return backend_class(source.config)(source, options)


def create_instances(
    backend: BackendModel, specs: Sequence[InstanceSpec], undo: ExitStack
) -> Sequence[Instance]:
    """The instances, which `undo` closes.

    Raises:
        HalimedeError: the backend refuses to make one.
    """
    wanted = {"0": False, "1": True}.get(os.environ.get(_SIDE_BY_SIDE, ""), backend.creates_side_by_side)
    if not wanted or len(specs) == 1:
        instances = []
        for spec in specs:
            instances.append(_create(backend, spec))
            undo.callback(instances[-1].close)
        return instances
    with ThreadPoolExecutor(min(len(specs), _MAX_SIDE_BY_SIDE), "halimede-instances") as threads:
        attempts = [threads.submit(_create, backend, spec) for spec in specs]
    for attempt in attempts:
        if attempt.exception() is None:
            undo.callback(attempt.result().close)
    return [attempt.result() for attempt in attempts]


def _create(backend: BackendModel, spec: InstanceSpec) -> Instance:
    """The instance, with the threads that its framework starts for it where it is to run."""
    with spec.placed():
        return backend.create_instance(spec)


def _tell_unknown_policies(config: ModelConfig, settings: EngineSettings) -> None:
    for group in config.instance_group:
        if group.host_policy and group.host_policy not in settings.host_policies:
            logger.warning(
                "instance group '%s' of model '%s' names the host policy '%s', which no --host-policy describes",
                group.name,
                config.name,
                group.host_policy,
            )


def _cpu_threads(config: ModelConfig, settings: EngineSettings) -> int:
    """The threads that the instances share out: no more than they have processors."""
    policies = [wanted.spec.policy for wanted in instance_specs(config, settings.host_policies)]
    cpus = {cpu for policy in policies if policy is not None for cpu in policy.cpus}
    return settings.cpu_threads if not cpus or None in policies else min(len(cpus), settings.cpu_threads)


def refuse_runtime(source: ModelSource, directory: Path | None) -> None:
    """Refuse a `runtime` of a Python model that is not that of its backend.

    Raises:
        InvalidArgumentError: it is another one.
    """
    runtime = source.config.runtime
    if runtime in ("", _PYTHON_RUNTIME):
        return
    kind = "Python backend based backend" if runtime.endswith(".py") else "backend"
    places = [source.directory / str(source.version), source.directory]
    if directory is not None:
        places.append(directory / PYTHON)
    searched = " ".join(f"'{place}'" for place in places)
    raise InvalidArgumentError(
        f"unable to find {kind} library '{runtime}' for model '{source.name}', searched: {searched}. "
        f"Remove 'runtime', as the backend {PYTHON} is part of this server"
    )


def refuse_places(config: ModelConfig, placed: Placement) -> None:
    """Refuse GPUs that there are not, before a framework is asked for them.

    Raises:
        InvalidArgumentError: the text says what is missing.
    """
    for problem in instance_problems(config, placed.gpus, placed.missing):
        raise InvalidArgumentError(problem.message)


class WantedInstance(NamedTuple):
    """An instance that a configuration asks for; as of `LoadedInstance`."""

    spec: InstanceSpec
    passive: bool
    limits: bytes = b""


def instance_specs(config: ModelConfig, policies: Mapping[str, HostPolicy]) -> list[WantedInstance]:
    """The instances that the configuration asks for, where these host policies have them run."""
    wanted: list[WantedInstance] = []
    for group in config.instance_group:
        kind = ModelInstanceGroup.Kind.Name(group.kind)
        devices = list(group.gpus) if kind == "KIND_GPU" else [0]
        limits = group.rate_limiter.SerializeToString(deterministic=True)
        for number, device in enumerate(device for device in devices for _ in range(group.count)):
            policy = policy_of(policies, group.host_policy, kind, device)
            spec = InstanceSpec(f"{group.name}_{number}", len(wanted), kind, device, policy)
            wanted.append(WantedInstance(spec, group.passive, limits))
    return wanted


def first_response_bounds(config: ModelConfig) -> tuple[float, ...]:
    """Buckets of the histogram of first responses, in milliseconds, as `model_metrics` may set them."""
    for control in config.model_metrics.metric_control:
        if control.metric_identifier.family == "nv_inference_first_response_histogram_ms":
            return tuple(sorted(control.histogram_options.buckets))
    return FIRST_RESPONSE_BOUNDS_MS
