"""Model files that do not have the name that their backend expects: what runs them, or what is to be done with them.

Told by suffix, and by the first bytes where a suffix is shared with other files.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from halimede.config.checkpoints import is_language_model, lacking_weights, language_backend
from halimede.core.versions import version_number

_START = 4096


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file, or a directory, that a backend can load.

    Attributes:
        backend: what runs it.
        platform: what `platform` becomes, "" to leave it empty.
        path: where it is.
    """

    backend: str
    platform: str
    path: Path


@dataclass(frozen=True, slots=True)
class Advice:
    """What is to be done with files that cannot be served where and as they are.

    Attributes:
        reason: what is there, for the end of an error's text.
        fix: what to do, as one line.
    """

    reason: str
    fix: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.fix}"


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_START)
    except OSError:
        return b""


def _is_xgboost(path: Path) -> bool:
    start = _start(path)
    return start.startswith((b"{", b"binf")) and (b"learner" in start or start.startswith(b"binf"))


def _is_lightgbm(path: Path) -> bool:
    return _start(path).startswith(b"tree\n")


def _is_openvino(path: Path) -> bool:
    return b"<net " in _start(path)


def _is_python_model(path: Path) -> bool:
    try:
        return b"class TritonPythonModel" in path.read_bytes()
    except OSError:
        return False


def _is_file(path: Path) -> bool:
    return path.is_file()


_KINDS: dict[str, tuple[str, str, Callable[[Path], bool]]] = {
    ".onnx": ("onnxruntime", "onnxruntime_onnx", _is_file),
    ".pt": ("pytorch", "pytorch_libtorch", _is_file),
    ".pth": ("pytorch", "pytorch_libtorch", _is_file),
    ".pt2": ("pytorch", "torch_aoti", _is_file),
    ".plan": ("tensorrt", "tensorrt_plan", _is_file),
    ".dali": ("dali", "", _is_file),
    ".ubj": ("fil", "", _is_file),
    ".tl": ("fil", "", _is_file),
    ".json": ("fil", "", _is_xgboost),
    ".model": ("fil", "", _is_xgboost),
    ".txt": ("fil", "", _is_lightgbm),
    ".xml": ("openvino", "", _is_openvino),
    ".py": ("python", "", _is_python_model),
}
"""Suffix → backend, platform, and whether a file of that suffix is such a model."""

_SCIKIT_LEARN = (
    "pickles are never loaded, as reading one runs whatever is in it",
    (
        'export the model: to ONNX, with skl2onnx.to_onnx(model, X[:1], options={"zipmap": False}), saved as '
        "1/model.onnx (without options for anything but a classifier); a forest with "
        "treelite.sklearn.import_model(model).serialize('1/checkpoint.tl'); XGBoost with "
        "model.save_model('1/xgboost.ubj'); LightGBM with model.booster_.save_model('1/model.txt')"
    ),
)
_KERAS = ("Keras files are not served", "export the model in Python: model.export('1/model.savedmodel')")
_WEIGHTS = (
    "it holds weights without the program that uses them",
    (
        "export the model to ONNX (1/model.onnx) or with torch.jit.save (1/model.pt), or serve a module of Python code "
        'that loads the weights (1/model.py and runtime: "model.py")'
    ),
)
_ADVICE = {
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), _SCIKIT_LEARN),
    **dict.fromkeys((".h5", ".keras", ".hdf5"), _KERAS),
    **dict.fromkeys((".safetensors", ".bin", ".ckpt"), _WEIGHTS),
    ".pb": (
        "its name does not tell what it is",
        (
            "rename a frozen graph to 1/model.graphdef and list its tensors in config.pbtxt; make a SavedModel a "
            "directory 1/model.savedmodel"
        ),
    ),
    ".cbm": (
        "CatBoost's own format is not served",
        "export the model in Python: model.save_model('1/model.onnx', format='onnx')",
    ),
}
"""Suffix → why such a file is not served, and what to do instead."""


def recognise(path: Path) -> ModelFile | None:
    """What runs the file, None if that cannot be told."""
    if path.is_dir():
        if (path / "saved_model.pb").is_file():
            return ModelFile("tensorflow", "tensorflow_savedmodel", path)
        return None
    backend, platform, test = _KINDS.get(path.suffix.lower(), ("", "", _is_file))
    return ModelFile(backend, platform, path) if backend and test(path) else None


def other_file(version: Path, platform: str, backend: str) -> ModelFile | None:
    """The one file of a version's directory that is a model, whatever it is called; None for none or several.

    Args:
        version: the directory.
        platform: only files of it; "" for any.
        backend: only files that it runs; "" for any.
    """
    found = [
        each
        for each in models_in(version)
        if backend in ("", each.backend) and platform in ("", each.platform)
    ]
    return found[0] if len(found) == 1 else None


def models_in(directory: Path) -> Iterator[ModelFile]:
    """The files and directories in a directory that a backend can load."""
    for entry in _entries(directory):
        if (found := recognise(entry)) is not None:
            yield found


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))
    except OSError:
        return []


def is_version(name: str) -> bool:
    """Whether a directory of that name is a version's."""
    return version_number(name) is not None


def hint(directory: Path, backend: str = "") -> str:
    """What `advice` says, as a sentence to append to an error's text; "" for nothing."""
    found = advice(directory, backend)
    return "" if found is None else f". {found}"


def hint_without_version(directory: Path) -> str:
    """`hint`, for a model that has no version at all; "" for others."""
    has_version = any(is_version(entry.name) and entry.is_dir() for entry in _entries(directory))
    return "" if has_version else hint(directory)


def advice(directory: Path, backend: str = "") -> Advice | None:
    """What is to be done with the files in a model's directory, of which none can be loaded as it is.

    None if nothing there looks like a model.

    Args:
        directory: the model's directory.
        backend: the one that is configured, "" for none.
    """
    entries = _entries(directory)
    versions = [entry for entry in entries if is_version(entry.name) and entry.is_dir()]
    if not versions:
        return _without_version(directory, entries)
    version = versions[0]
    inside = _entries(version)
    models = list(models_in(version))
    if len(models) > 1:
        names = ", ".join(each.path.name for each in models)
        fix = f'default_model_filename: "{models[0].path.name}"'
        return Advice(
            f"{version} has several models ({names}), and config.pbtxt must say which one is meant", fix
        )
    if models and backend not in ("", models[0].backend):
        reason = f"{models[0].path} is a model of the backend {models[0].backend}"
        return Advice(reason, f'backend: "{models[0].backend}"')
    if (version / "saved_model.pb").is_file():
        fix = f"move all that is in {version} to {version / 'model.savedmodel'}"
        return Advice(f"{version} itself is a SavedModel", fix)
    if is_language_model(version) and (pretrained := _pretrained(version)) is not None:
        return pretrained
    for entry in inside:
        if entry.suffix.lower() in _ADVICE:
            return _instead(entry)
    if not models:
        for entry in entries:
            if (found := recognise(entry)) is not None or entry.suffix.lower() in _ADVICE:
                return _to_move(directory, entry, found)
    for entry in inside:
        deeper = next(models_in(entry), None) if entry.is_dir() else None
        if deeper is not None:
            fix = f"move {deeper.path} to {version / deeper.path.name}"
            return Advice(f"{deeper.path} must be in {version} itself", fix)
    return None


def advice_for_file(path: Path) -> Advice | None:
    """What is to be done with a file of a kind that is known and not served; None for any other."""
    return _instead(path) if path.suffix.lower() in _ADVICE else None


def _pretrained(version: Path) -> Advice | None:
    """What is to be done with a language model of `transformers`; None if its weights cannot be loaded."""
    if lacking_weights(version):
        return None
    return Advice(
        f"{version} has a language model of transformers", f'backend: "{language_backend(version)}"'
    )


def _without_version(directory: Path, entries: list[Path]) -> Advice | None:
    if is_language_model(directory):
        target = directory / "1"
        reason = f"{directory} itself is a language model of transformers"
        return Advice(reason, f"move all that is in it to {target}, and write {directory / 'config.pbtxt'}")
    for entry in entries:
        found = recognise(entry)
        if found is not None or entry.suffix.lower() in _ADVICE:
            return _to_move(directory, entry, found)
    if (directory / "saved_model.pb").is_file():
        target = directory / "1" / "model.savedmodel"
        return Advice(f"{directory} itself is a SavedModel", f"move all that is in it to {target}")
    for entry in entries:
        deeper = next(models_in(entry), None) if entry.is_dir() else None
        if deeper is not None:
            reason = f"{entry} has a model, but its name is no version: an integer without leading zeros"
            right = entry.name.lstrip("0") if is_version(entry.name.lstrip("0")) else "1"
            return Advice(reason, f"rename {entry} to {directory / right}")
    return None


def _instead(entry: Path) -> Advice:
    why, fix = _ADVICE[entry.suffix.lower()]
    return Advice(f"{entry} cannot be served ({why})", fix)


def _to_move(directory: Path, entry: Path, found: ModelFile | None) -> Advice:
    if found is None:
        return _instead(entry)
    reason = f"{entry} is not in a version's directory"
    return Advice(reason, f"make the directory {directory / '1'} and move {entry.name} into it")


def looks_like_model(directory: Path) -> bool:
    """Whether a directory is a model, rather than a repository of models."""
    entries = _entries(directory)
    folders = [entry for entry in entries if entry.is_dir()]
    others = ("warmup", "initial_state", "configs")
    versions = [entry for entry in folders if is_version(entry.name)]
    if any(
        entry not in versions and entry.name not in others and recognise(entry) is None for entry in folders
    ):
        return False
    for version in versions:
        if (version / "config.pbtxt").exists() or any(
            is_version(entry.name) and entry.is_dir() for entry in _entries(version)
        ):
            return False
    files = (directory / "config.pbtxt").is_file() or next(models_in(directory), None) is not None
    return files or any(next(models_in(version), None) is not None for version in versions)
