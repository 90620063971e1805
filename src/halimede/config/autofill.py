"""The part of auto-completion that looks at file names only: name, platform, backend, model file.

It runs for every model, before any backend is loaded.
"""

from dataclasses import dataclass
from pathlib import Path

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.model_files import hint, is_version, other_file, recognise
from halimede.core.errors import InvalidArgumentError

ENSEMBLE = "ensemble"

PLATFORM_BACKENDS = {
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "torch_aoti": "pytorch",
}
"""Backends of the platforms that the older `platform` setting names."""


@dataclass(frozen=True, slots=True)
class _Format:
    """A kind of model, told by the name of its file.

    Attributes:
        backend: what runs it.
        platform: what `platform` becomes, "" to leave it empty.
        filename: the file or directory in a version's directory.
        is_directory: it must be a directory to count.
    """

    backend: str
    platform: str
    filename: str
    is_directory: bool = False


_FORMATS = (  # in the order in which they are looked for
    _Format("tensorflow", "tensorflow_savedmodel", "model.savedmodel", is_directory=True),
    _Format("tensorflow", "tensorflow_graphdef", "model.graphdef"),
    _Format("tensorrt", "tensorrt_plan", "model.plan"),
    _Format("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    _Format("openvino", "", "model.xml"),
    _Format("pytorch", "pytorch_libtorch", "model.pt"),
    _Format("pytorch", "torch_aoti", "model.pt2"),
    _Format("python", "", "model.py"),
    _Format("pytorch", "pytorch_libtorch", "model.py"),
    _Format("dali", "", "model.dali"),
    _Format("dali", "", "dali.py"),
)
_FORESTS = ("xgboost.ubj", "xgboost.json", "xgboost.model", "model.txt", "checkpoint.tl")
"""Files that the backend of trees looks for by itself, in its order."""


def autofill(config: ModelConfig, name: str, directory: Path) -> None:
    """Fill in name, platform, backend and model file name in place, where they are empty and can be told.

    Args:
        config: the configuration.
        name: the model's name.
        directory: the model's directory, which holds those of its versions.

    Raises:
        InvalidArgumentError: name, platform or backend contradict each other, or no backend can be told.
    """
    if config.name and config.name != name:
        raise InvalidArgumentError(
            f"unexpected directory name '{name}' for model '{config.name}', "
            "directory name must equal model name"
        )
    try:
        config.name = name
    except ValueError as error:
        raise InvalidArgumentError(f"invalid model name {name!r}, model name must be UTF-8") from error
    if config.platform == ENSEMBLE:
        return
    _check_pair(config)
    found = _other_name(config, directory) or _told_format(config, directory)
    if found is not None:
        config.backend = found.backend
        config.platform = config.platform or found.platform
        config.default_model_filename = config.default_model_filename or found.filename
    elif not (config.backend or config.default_model_filename or config.HasField("ensemble_scheduling")):
        _fill_from_name(config, directory)


def _check_pair(config: ModelConfig) -> None:
    backend = PLATFORM_BACKENDS.get(config.platform)
    if config.platform and backend is None and not config.backend:
        raise InvalidArgumentError(f"unexpected platform type '{config.platform}' for {config.name}")
    tied = config.backend in PLATFORM_BACKENDS.values()
    if config.platform and config.backend and tied and backend != config.backend:
        raise InvalidArgumentError(
            f"unexpected 'platform' and 'backend' pair, got:{config.platform}, {config.backend}"
        )


def _told_format(config: ModelConfig, directory: Path) -> _Format | None:
    """The kind of model that backend, platform and model file name leave possible and the files confirm."""
    backend = config.backend or PLATFORM_BACKENDS.get(config.platform, "")
    filename = config.default_model_filename
    platform = "pytorch_libtorch" if config.platform == "libtorch" else config.platform
    possible = [
        each
        for each in _FORMATS
        if backend in ("", each.backend)
        and (platform in ("", each.platform) or (config.backend and not each.platform))
        and (filename in ("", each.filename) or backend == each.backend)
    ]
    # a runtime that is a Python file runs a model that is one
    possible.sort(key=lambda each: each.filename != config.runtime)
    named = [each for each in possible if each.filename == filename]
    if named or not filename:
        version = _first_version(directory)
        present = [each for each in named or possible if version is not None and _is_there(each, version)]
        if present:
            return present[0]
    if named:
        return named[0]
    # backend or platform alone are enough where they leave one kind; the usual one comes first
    return possible[0] if backend and possible and (platform or backend != "tensorflow") else None


def _other_name(config: ModelConfig, directory: Path) -> _Format | None:
    """The only model in the first version's directory, where none has a usual name; or the one that is configured."""
    version = _first_version(directory)
    if version is None or config.runtime or config.HasField("ensemble_scheduling"):
        return None
    if config.default_model_filename:
        if config.backend or config.platform or "/" in config.default_model_filename:
            return None
        named = recognise(version / config.default_model_filename)
        return None if named is None else _Format(named.backend, named.platform, named.path.name)
    backend = config.backend or PLATFORM_BACKENDS.get(config.platform, "")
    if any(_is_there(each, version) for each in _FORMATS if backend in ("", each.backend)):
        return None
    if backend == "fil" and ("model_type" in config.parameters or _forest_in(version)):
        return None
    found = other_file(version, config.platform, backend)
    if not backend and (forest := _forest_in(version)):
        return _Format("fil", "", forest)
    return None if found is None else _Format(found.backend, found.platform, found.path.name)


def _forest_in(version: Path) -> str:
    return next((name for name in _FORESTS if (version / name).is_file()), "")


def _first_version(directory: Path) -> Path | None:
    """The first of the version directories, by name as text; of any directories, where none is a version's."""
    if not directory.is_dir():
        return None
    found = [entry for entry in directory.iterdir() if entry.is_dir()]
    versions = [entry for entry in found if is_version(entry.name)]
    return min(versions or found, default=None, key=lambda entry: entry.name)


def _is_there(kind: _Format, version: Path) -> bool:
    path = version / kind.filename
    return path.is_dir() if kind.is_directory else path.exists()


def _fill_from_name(config: ModelConfig, directory: Path) -> None:
    """A model directory named ``<anything>.<backend>`` tells its backend."""
    _, dot, backend = config.name.partition(".")
    if not dot or not backend:
        raise InvalidArgumentError(
            f"Invalid model name: Could not determine backend for model '{config.name}' with no backend "
            f"in model configuration. Expected model name of the form 'model.<backend_name>'."
            f"{hint(directory).removeprefix('.')}"
        )
    config.backend = backend
    config.default_model_filename = f"model.{backend}"
