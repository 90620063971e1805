"""The model directories that stand for files and directories: links to them, as a repository has them."""

import mmap
import re
from pathlib import Path
from typing import Final

from google.protobuf import text_format

from halimede.config.checkpoints import is_language_model, lacking_weights, language_backend
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.model_files import advice_for_file, is_version, looks_like_model, models_in, recognise
from halimede.files.targets import TargetError, functions_in
from halimede.files.text.checkpoint import is_text_model
from halimede.files.text.repository import write_text_models

_LOCATION: Final = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")
"""How an ONNX file names a file with weights: the key, and the length of the name that follows."""

LANGUAGE_MODEL: Final = "language model"
_CONFIG: Final = "config.pbtxt"
_LANGUAGE_CONFIG: Final = """\
# A language model. docs/language-models.md explains the parameters; OpenAI's API needs --allow-openai=true.
backend: "{backend}"

# So many texts are written at once; further requests wait.
# parameters {{ key: "max_num_seqs" value {{ string_value: "16" }} }}

# The most tokens of prompt and text together; without it, as many as the model was made for.
# parameters {{ key: "max_model_len" value {{ string_value: "4096" }} }}
"""
_LABELS: Final = {
    "onnxruntime": "ONNX model",
    "pytorch": "PyTorch model",
    "tensorflow": "TensorFlow model",
    "tensorrt": "TensorRT engine",
    "openvino": "OpenVINO model",
    "fil": "trees",
    "dali": "DALI pipeline",
    "python": "Python model",
}
_KINDS: Final = (
    "ONNX, TorchScript, torch.export, SavedModel, GraphDef, OpenVINO, XGBoost, LightGBM, treelite, DALI, "
    "TensorRT"
)


def link_model(repository: Path, name: str, path: Path) -> str:
    """Make the directory of a model of what lies at `path`; the result says how it was understood.

    Of a text model, the directories of its steps are made, too.

    Raises:
        TargetError: it is no model that can be served.
    """
    directory = repository / name
    if path.is_dir() and is_text_model(path):
        return write_text_models(repository, name, path)
    if path.is_dir():
        if is_language_model(path) and not (path / _CONFIG).is_file():
            return _link_language_model(directory, path)
        return _link_directory(directory, path)
    found = recognise(path)
    if found is None:
        raise TargetError(_unknown(path))
    version = directory / "1"
    if path.suffix == ".py":  # its directory holds what it imports and reads
        directory.mkdir()
        version.symlink_to(path.absolute().parent)
        _write_filename(directory, path.name, found.backend)
        return _LABELS[found.backend]
    version.mkdir(parents=True)
    for each in (path, *_companions(path)):
        link = version / each.relative_to(path.parent)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(each.absolute())
    return _LABELS[found.backend]


def _link_language_model(directory: Path, path: Path) -> str:
    if problem := lacking_weights(path):
        raise TargetError(problem)
    directory.mkdir()
    (directory / "1").symlink_to(path.absolute())
    (directory / _CONFIG).write_text(_LANGUAGE_CONFIG.format(backend=language_backend(path)))
    return LANGUAGE_MODEL


def _link_directory(directory: Path, path: Path) -> str:
    if recognise(path) is not None:
        (directory / "1").mkdir(parents=True)
        (directory / "1" / "model.savedmodel").symlink_to(path.absolute())
        return _LABELS["tensorflow"]
    entries = sorted(path.iterdir())
    versions = [each for each in entries if is_version(each.name) and each.is_dir()]
    if versions or (path / _CONFIG).is_file():
        directory.mkdir()
        for each in entries:
            if each.name == _CONFIG:
                _copy_config(each, directory)
            else:
                (directory / each.name).symlink_to(each.absolute())
        return "model directory"
    models = list(models_in(path))
    if len(models) == 1:
        directory.mkdir()
        (directory / "1").symlink_to(path.absolute())
        if models[0].path.name != "model.py":
            _write_filename(directory, models[0].path.name, models[0].backend)
        return _LABELS[models[0].backend]
    if models:
        names = ", ".join(str(each.path) for each in models)
        raise TargetError(f"'{path}' has several models; name those to serve: {names}")
    if any(each.is_dir() and looks_like_model(each) for each in entries):
        raise TargetError(
            f"'{path}' is a repository of several models; serve it with --model-repository={path}"
        )
    for each in entries:
        if (told := advice_for_file(each)) is not None:
            raise TargetError(str(told))
    raise TargetError(
        f"directory '{path}' has no model: neither config.pbtxt nor a version such as 1/, nor a file of {_KINDS}, "
        "nor a model.py with a TritonPythonModel"
    )


def _write_filename(directory: Path, name: str, backend: str) -> None:
    config = ModelConfig(backend=backend, default_model_filename=name)
    (directory / _CONFIG).write_text(text_format.MessageToString(config))


def _copy_config(file: Path, directory: Path) -> None:
    """Copy a configuration; a name in it that is not the directory's is taken out."""
    text = file.read_text()
    (directory / _CONFIG).write_text(
        re.sub(r'^\s*name\s*:\s*("[^"]*"|\'[^\']*\')[,;]?', "", text, count=1, flags=re.M)
        if not re.match(rf'\s*name\s*:\s*"{re.escape(directory.name)}"', text)
        else text
    )


def _companions(path: Path) -> list[Path]:
    """The files that belong to a model's file: weights of ONNX and OpenVINO."""
    if path.suffix == ".xml":
        weights = path.with_suffix(".bin")
        return [weights] if weights.is_file() else []
    if path.suffix != ".onnx" or not path.stat().st_size:
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        names = {data[found.end() : found.end() + found[1][0]] for found in _LOCATION.finditer(data)}
    companions = [path.parent / name.decode(errors="replace") for name in sorted(names)]
    return [each for each in companions if each.is_file() and each.is_relative_to(path.parent)]


def _unknown(path: Path) -> str:
    if path.suffix == ".py":
        names = functions_in(path)
        if names:
            return (
                f"'{path}' has no class TritonPythonModel; to serve a function or class of it, name that: "
                f"{', '.join(f'{path}:{name}' for name in names[:5])}"
            )
        return f"'{path}' has neither a class TritonPythonModel nor a function to serve"
    if is_language_model(path.parent) or is_text_model(path.parent):
        return f"'{path}' is a part of the model in its directory: serve that, {path.parent}"
    told = advice_for_file(path)
    if told is not None:
        return str(told)
    return f"'{path}' is no model file that is known here. Known are files of {_KINDS}, and Python models (model.py)"
