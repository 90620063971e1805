"""The files that hold a forest: which one a model has, and reading it with treelite.

Formats and file names are those of Triton's FIL backend. Pickles are not among them: reading one runs what is in it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import treelite

from halimede.backends.base import ModelSource
from halimede.backends.fil.settings import switch_parameter
from halimede.backends.file_looks import note
from halimede.backends.parameters import choice_parameter
from halimede.config.model_files import hint
from halimede.core.errors import InvalidArgumentError, NotFoundError, OutOfMemoryError, UnsupportedError
from halimede.core.out_of_memory import is_out_of_memory


@dataclass(frozen=True, slots=True)
class Format:
    """A serialization of forests.

    Attributes:
        model_type: its name in the parameter `model_type`.
        filename: the name that its file has unless the configuration says otherwise.
        words: what error messages call such a file.
    """

    model_type: str
    filename: str
    words: str

    @property
    def suffix(self) -> str:
        """How names of such files end."""
        return Path(self.filename).suffix


UBJSON = Format("xgboost_ubj", "xgboost.ubj", "an XGBoost model in UBJSON")
JSON = Format("xgboost_json", "xgboost.json", "an XGBoost model in JSON")
LEGACY = Format("xgboost", "xgboost.model", "an XGBoost model in the old binary format")
LIGHTGBM = Format("lightgbm", "model.txt", "a LightGBM text model")
CHECKPOINT = Format("treelite_checkpoint", "checkpoint.tl", "a treelite checkpoint")

FORMATS = (UBJSON, JSON, LEGACY, LIGHTGBM, CHECKPOINT)
"""In the order in which their files are looked for."""

_PICKLES = (".pkl", ".pickle", ".joblib")
_PLACE = re.compile(r"\[\d\d:\d\d:\d\d\] \S+: (Check failed: [^:]*: )?")


def of_xgboost(kind: Format) -> bool:
    """Whether XGBoost wrote files of that format."""
    return kind in (UBJSON, JSON, LEGACY)


def find_file(source: ModelSource) -> tuple[Format, Path]:
    """The model's file and its format.

    The parameter `model_type` decides, else the name of the file.

    Raises:
        InvalidArgumentError: neither tells the format.
        NotFoundError: there is no such file.
        UnsupportedError: the file is a pickle.
    """
    config = source.config
    name = config.default_model_filename
    if Path(name).suffix in _PICKLES:
        msg = (
            f"unable to load model '{source.name}': '{name}' is a pickle, which can run any code when it is read; "
            f"convert it with treelite.sklearn.import_model(…).serialize('{CHECKPOINT.filename}')"
        )
        raise UnsupportedError(msg)
    choices = {each.model_type: each for each in FORMATS}
    model_type = choice_parameter(config, "model_type", {key: key for key in choices})
    if model_type is not None:
        found = choices[model_type]
    elif name:
        suffixes = {each.suffix: each for each in FORMATS}
        if Path(name).suffix not in suffixes:
            msg = (
                f"unable to load model '{source.name}': the name '{name}' does not tell its format; set the "
                f"parameter 'model_type' to one of {', '.join(choices)}"
            )
            raise InvalidArgumentError(msg)
        found = suffixes[Path(name).suffix]
    else:
        there = [each for each in FORMATS if (source.version_directory / each.filename).is_file()]
        if not there:
            msg = (
                f"unable to load model '{source.name}': there is none of "
                f"{', '.join(each.filename for each in FORMATS)} in {source.version_directory}. The setting "
                f"default_model_filename names another file{hint(source.directory, 'fil')}"
            )
            raise NotFoundError(msg)
        found = there[0]
    path = source.version_directory / (name or found.filename)
    if not path.is_file():
        msg = (
            f"unable to load model '{source.name}': there is no file {path}; expected {found.words} there. The "
            f"setting default_model_filename names another{hint(source.directory, 'fil')}"
        )
        raise NotFoundError(msg)
    return found, path


def read_forest(source: ModelSource, kind: Format, path: Path) -> treelite.Model:
    """The forest in the file.

    Raises:
        InvalidArgumentError: the file is not of that format, or is truncated.
        OutOfMemoryError: there is not enough memory for it.
    """
    lenient = switch_parameter(source.config, "xgboost_allow_unknown_field") or False
    kind = _written_as(kind, path)
    try:
        forest = _read(kind, path, lenient=lenient)
    except (treelite.TreeliteError, UnicodeDecodeError) as error:
        text = " ".join(_PLACE.sub("", str(error)).split())
        where = f"unable to load model '{source.name}': {path}"
        msg = f"{where} is not {kind.words}, or is damaged: {text}{note(path)}"
        if is_out_of_memory(text, (source.name, str(path))):
            raise OutOfMemoryError(msg) from error
        raise InvalidArgumentError(msg) from error
    if not forest.num_tree:
        raise InvalidArgumentError(f"unable to load model '{source.name}': {path} has no trees")
    if kind is LIGHTGBM:
        announced = _announced_trees(path)
        if announced not in (None, forest.num_tree):
            msg = (
                f"unable to load model '{source.name}': {path} is truncated: it should have {announced} trees, "
                f"but has {forest.num_tree}"
            )
            raise InvalidArgumentError(msg)
    return forest


def _read(kind: Format, path: Path, *, lenient: bool) -> treelite.Model:
    match kind.model_type:
        case "xgboost_ubj":
            return treelite.frontend.load_xgboost_model(
                path, format_choice="ubjson", allow_unknown_field=lenient
            )
        case "xgboost_json":
            return treelite.frontend.load_xgboost_model(
                path, format_choice="json", allow_unknown_field=lenient
            )
        case "xgboost":
            return treelite.frontend.load_xgboost_model_legacy_binary(path)
        case "lightgbm":
            return treelite.frontend.load_lightgbm_model(path)
        case _:
            return treelite.Model.deserialize(path)


def _written_as(kind: Format, path: Path) -> Format:
    """The format that an XGBoost file has: newer releases of XGBoost write UBJSON where the old format is asked for."""
    if kind is not LEGACY:
        return kind
    with path.open("rb") as file:
        start = file.read(2)
    if start[:1] != b"{":
        return LEGACY
    if start[1:] in (b"L", b"l", b"I", b"i", b"U"):  # the length of a key
        return UBJSON
    return JSON if start[1:] in (b'"', b"\n", b"\r", b" ", b"\t") else LEGACY


def _announced_trees(path: Path) -> int | None:
    """How many trees a LightGBM file says that it has, or None if it does not say."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("tree_sizes="):
                return len(line.partition("=")[2].split())
            if line.startswith("Tree="):
                break
    return None
