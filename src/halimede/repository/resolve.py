"""From a model's directory to what is to be loaded: configuration and versions."""

from dataclasses import dataclass
from pathlib import Path

from halimede.backends.placement import fall_back_to_cpus, placement
from halimede.config.autofill import autofill
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.config.override import ConfigOverride
from halimede.config.parse import read_config
from halimede.config.validate import check_file_names, validate_settings
from halimede.core.errors import InvalidArgumentError
from halimede.repository.namespace import Namespace
from halimede.repository.versions import find_versions, select_versions


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """What a model's directory says is to be loaded.

    Attributes:
        directory: the model's directory.
        config: its configuration with name, backend and platform filled in and in normal form. What its
            backend completes, and validity with it, is settled for each version while it loads.
        versions: the versions that the policy selects, ascending; there may be none.
    """

    directory: Path
    config: ModelConfig
    versions: tuple[int, ...]


def resolve(
    name: str,
    directory: Path,
    *,
    config_name: str = "",
    config_override: ConfigOverride | None = None,
    auto_complete: bool = True,
    gpus: tuple[int, ...] = (),
    cpu_fallback: bool = False,
    namespace: Namespace | None = None,
) -> ResolvedModel:
    """What the model's directory says is to be loaded.

    Args:
        name: the model's name.
        directory: its directory.
        config_name: use ``configs/<name>.pbtxt`` where it exists.
        config_override: the one to use instead of what lies on disk.
        auto_complete: the backend completes the configuration later, so it need not be there or valid yet.
        gpus: device numbers of the GPUs that instances may be placed on, if their backend can use them.
        cpu_fallback: instance groups of KIND_GPU run on CPUs if there are none of these.
        namespace: the archive that it lies in, None for a repository.

    Raises:
        HalimedeError: the configuration cannot be read or contradicts itself.
        OSError: the directory cannot be read.
    """
    if config_override is not None:
        config = config_override.read()
    else:
        path = config_path(directory, config_name)
        config = read_config(path) if not auto_complete or path.exists() else ModelConfig()
    own_name = name if namespace is None else namespace.own_name(name)
    if namespace is not None and namespace.entry == name:
        config.name = ""
    if config.name and config.name != own_name:
        raise InvalidArgumentError(
            f"unexpected directory name '{own_name}' for model '{config.name}', "
            "directory name must equal model name"
        )
    check_file_names(config)
    autofill(config, own_name, directory)
    if namespace is not None:
        namespace.rename(config, name)
    placed = placement(config, gpus)
    if cpu_fallback:
        fall_back_to_cpus(config, placed)
    normalise(config, placed.gpus)
    validate_settings(config, complete=not auto_complete)
    versions = select_versions(config.version_policy, find_versions(directory))
    return ResolvedModel(directory, config, tuple(versions))


def config_path(directory: Path, config_name: str = "") -> Path:
    """The file that configures the model; it need not exist.

    ``configs/<config_name>.pbtxt`` if there is one, else ``config.pbtxt``.
    """
    named = directory / "configs" / f"{config_name}.pbtxt"
    return named if config_name and named.exists() else directory / "config.pbtxt"
