"""Models that lie in one archive, and see each other under names of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from halimede.config.model_config_pb2 import ModelConfig


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """The models of one archive.

    Two archives may hold models of the same names, so that each model has another one in the server.

    Attributes:
        names: own name, which is that of the directory → name in the server.
        directories: name in the server → directory.
        entry: name in the server of the one that requests to the archive are for. Its configuration may say any name.
    """

    names: Mapping[str, str]
    directories: Mapping[str, Path]
    entry: str

    def own_name(self, name: str) -> str:
        """What a model of the archive, known by its name in the server, is called in the archive."""
        return self.directories[name].name

    def rename(self, config: ModelConfig, name: str) -> None:
        """Give the configuration, and the steps in it, the names in the server."""
        config.name = name
        for step in config.ensemble_scheduling.step if config.HasField("ensemble_scheduling") else ():
            step.model_name = self.names.get(step.model_name, step.model_name)
