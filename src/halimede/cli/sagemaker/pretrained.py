"""Pretrained models without a configuration: directories of Hugging Face's layout, served as LMI's containers do.

They become a repository of one model, whose configuration says what the options of the environment and of the model's
``serving.properties`` ask for.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from halimede.cli.sagemaker.language_options import (
    DTYPE,
    DTYPES,
    IDLE_PROPERTIES,
    LANGUAGE_OPTIONS,
    MODEL_ID,
    LanguageOption,
)
from halimede.config.checkpoints import language_backend
from halimede.files.targets import TargetError
from halimede.files.text.checkpoint import is_text_model
from halimede.files.text.repository import write_text_models
from halimede.repository.archive_layout import is_model

NAME: Final = "model"
"""What the model is called."""

PROPERTIES: Final = "serving.properties"
_CONFIG: Final = "config.json"
_PLACE: Final = Path("/opt/ml/model")
_OTHER_PROPERTIES: Final = frozenset(("engine",))
"""Properties that every model of LMI has, and that say nothing here."""


class Pretrained(NamedTuple):
    """A model to serve.

    Attributes:
        repository: the directory that holds the model's.
        directory: where its files are.
        environment: what the server is told by variables.
        remarks: what to warn of.
    """

    repository: Path
    directory: Path
    environment: dict[str, str]
    remarks: list[str]


class _Given(NamedTuple):
    """The text of an option, and where it comes from."""

    text: str
    source: str


def find_pretrained(
    place: Path, variables: Mapping[str, str], scratch: Callable[[], Path], gpus: int
) -> Pretrained | None:
    """The pretrained model to serve; None if the place holds models with a configuration, or nothing of the kind.

    Args:
        place: `/opt/ml/model`, or what stands in its place.
        variables: name of each variable that is set → its text.
        scratch: makes an empty directory for the repository; called only if there is such a model.
        gpus: how many GPUs there are.

    Raises:
        click.UsageError: an option has a value that cannot be honoured, or names no model.
        OSError: something cannot be read.
    """
    properties = _read_properties(place / PROPERTIES)
    given = _options(properties, place / PROPERTIES, variables)
    directory = _directory(place, given.get(MODEL_ID))
    if directory is None:
        return None
    values = {
        option.name: _parse(option, given[option.name]) for option in LANGUAGE_OPTIONS if option.name in given
    }
    degree = given.get("tensor_parallel_degree")
    if gpus > 1 and degree is not None and degree.text.lower() == "max":
        msg = (
            f"{degree.source}: 'max' is {gpus} GPUs here, but a model is not divided among GPUs; set it to 1"
        )
        raise click.UsageError(msg)
    repository = scratch() / "pretrained"
    if is_text_model(directory):
        remarks = _write_text_models(repository, directory, given) + _idle_properties(properties)
        return Pretrained(repository, directory, {}, remarks)
    backend = language_backend(directory)
    parameters, remarks = _parameters(backend, values, given)
    remarks += _idle_properties(properties)
    (repository / NAME).mkdir(parents=True)
    (repository / NAME / "1").symlink_to(directory.absolute(), target_is_directory=True)
    lines = [f'backend: "{backend}"']
    lines += [
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in parameters.items()
    ]
    (repository / NAME / "config.pbtxt").write_text("\n".join(lines) + "\n")
    environment = {
        f"OPTION_{name.upper()}": given[name].text
        for name in ("tgi_compat", "output_formatter")
        if name in given
    }
    return Pretrained(repository, directory, environment, remarks)


def _write_text_models(repository: Path, directory: Path, given: Mapping[str, _Given]) -> list[str]:
    """Write the models that embed or classify texts: what to warn of.

    Raises:
        click.UsageError: they cannot be served.
    """
    try:
        kind = write_text_models(repository, NAME, directory)
    except TargetError as error:
        raise click.UsageError(str(error)) from None
    return [
        f"{each.source} has no effect here. The model is a {kind} and generates no text."
        for name, each in given.items()
        if name != MODEL_ID
    ]


def _directory(place: Path, model_id: _Given | None) -> Path | None:
    """The directory with the model's files; None if there is none.

    Raises:
        click.UsageError: the option names something else.
    """
    if model_id is None:
        if not place.is_dir() or not (place / _CONFIG).is_file() or is_model(place):
            return None
        return place
    directory = Path(model_id.text)
    if directory.is_absolute() and directory.is_relative_to(_PLACE):
        directory = place / directory.relative_to(_PLACE)
    elif not directory.is_absolute():
        directory = place / directory
    if not (directory / _CONFIG).is_file():
        what = "there is no such directory" if not directory.is_dir() else f"'{directory}' has no {_CONFIG}"
        msg = (
            f"{model_id.source} is '{model_id.text}': {what}. Nothing is downloaded: put the model's files into the "
            f"archive, and set it to {_PLACE} or leave it out"
        )
        raise click.UsageError(msg)
    return directory


def _options(properties: Mapping[str, str], file: Path, variables: Mapping[str, str]) -> dict[str, _Given]:
    """Name of each option that is given → its text: by the file first, as in LMI's containers."""
    given = {}
    for option in LANGUAGE_OPTIONS:
        found = [key for key in option.properties if properties.get(key)]
        if found:
            given[option.name] = _Given(properties[found[0]], f"{found[0]} in {file.name}")
            continue
        for name in (option.variable, *option.others):
            if variables.get(name):
                given[option.name] = _Given(variables[name], name)
                break
    return given


def _parse(option: LanguageOption, given: _Given) -> Any:
    try:
        return option.kind.parse(given.text)
    except ValueError as error:
        msg = f"{given.source}: {error}"
        raise click.UsageError(msg) from None


def _parameters(
    backend: str, values: Mapping[str, Any], given: Mapping[str, _Given]
) -> tuple[dict[str, str], list[str]]:
    """The parameters of the model's configuration, and what to warn of."""
    parameters = {
        option.parameter: str(values[option.name]).lower()
        for option in LANGUAGE_OPTIONS
        if option.parameter and option.name in values
    }
    remarks = []
    if backend == "transformers":
        if DTYPE in values:
            parameters["dtype"] = DTYPES[values[DTYPE]]
        if parameters.pop("enable_prefix_caching", "false") == "true":
            source = given["enable_prefix_caching"].source
            remarks.append(f"{source} has no effect here. Only models of OpenVINO have a cache of prefixes.")
    elif values.get(DTYPE, "auto") != "auto":
        short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
        parameters["INFERENCE_PRECISION_HINT"] = short[DTYPES[values[DTYPE]]]
    return parameters, remarks


def _idle_properties(properties: Mapping[str, str]) -> list[str]:
    """What to warn of: properties without effect."""
    known = {key for option in LANGUAGE_OPTIONS for key in option.properties} | _OTHER_PROPERTIES
    remarks = []
    for name in properties:
        if name in IDLE_PROPERTIES:
            remarks.append(f"'{name}' in {PROPERTIES} has no effect here. {IDLE_PROPERTIES[name]}")
        elif name not in known:
            remarks.append(f"'{name}' in {PROPERTIES} is not known here and has no effect")
    return remarks


def _read_properties(path: Path) -> dict[str, str]:
    """The properties in a file of Java's format, in lower case; {} without the file."""
    if not path.is_file():
        return {}
    properties = {}
    for line in path.read_text("utf-8", errors="replace").splitlines():
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        end = next((place for place, letter in enumerate(text) if letter in "=:"), len(text))
        properties[text[:end].strip().lower()] = text[end + 1 :].strip()
    return properties
