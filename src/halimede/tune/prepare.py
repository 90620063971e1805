"""What is to be tuned, found out: which models, and what of them can be varied."""

from collections.abc import Sequence
from pathlib import Path

from google.protobuf import json_format

from halimede.bench.address import parse
from halimede.bench.control import HttpControl
from halimede.bench.errors import BenchError
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import read_config
from halimede.core.errors import HalimedeError
from halimede.tune.knobs import Target
from halimede.tune.served import serving

_CONFIG = "config.pbtxt"


def targets(repository: Path, model: str, further: Sequence[str], flags: Sequence[str]) -> list[Target]:
    """The measured model, the models that it is made of, and further ones, as a server completes them.

    Raises:
        BenchError: there is no such model, or the server cannot load it.
    """
    if not repository.is_dir():
        raise BenchError(f"{repository} is no model repository: there is no such directory")
    for name in (model, *further):
        if not (repository / name).is_dir():
            known = ", ".join(sorted(path.name for path in repository.iterdir() if path.is_dir()))
            raise BenchError(f"{repository} has no model '{name}'; it has {known}")
    with serving(repository, {}, [model, *further], flags) as server:
        control = HttpControl(parse(server.http, 8000), {})
        found: dict[str, Target] = {}
        waiting = [model, *further]
        while waiting:
            name = waiting.pop(0)
            if name in found:
                continue
            effective = completed(control, name)
            found[name] = Target(name, written(repository / name), effective)
            waiting += [step.model_name for step in effective.ensemble_scheduling.step]
    return list(found.values())


def completed(control: HttpControl, name: str) -> ModelConfig:
    """A model's configuration as the server completed it.

    Raises:
        BenchError: the server does not tell.
    """
    return json_format.ParseDict(control.config(name, ""), ModelConfig(), ignore_unknown_fields=True)


def written(directory: Path) -> ModelConfig:
    """The configuration in a model's directory; an empty one if it has no file.

    Raises:
        BenchError: it cannot be read.
    """
    path = directory / _CONFIG
    if not path.exists():
        return ModelConfig()
    try:
        return read_config(path)
    except HalimedeError as error:
        raise BenchError(f"{path}: {error}") from None
