"""Which agents a model's configuration names, and where their code is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.override import ConfigOverride
from halimede.config.parse import parse_text, read_text
from halimede.core.errors import InvalidArgumentError
from halimede.repository.layout import is_directory_name
from halimede.repository.resolve import config_path

AGENT_FILE = "agent.py"
BUILT_IN = {"checksum": Path(__file__).with_name("checksum.py")}


@dataclass(frozen=True, slots=True)
class DeclaredAgent:
    """An agent that a model's configuration names.

    Attributes:
        name: the agent.
        parameters: what the configuration tells it. They may be secrets.
    """

    name: str
    parameters: Mapping[str, str] = field(repr=False)


def read_config_with_agents(
    directory: Path, config_name: str = "", config_override: ConfigOverride | None = None
) -> ModelConfig | None:
    """The model's configuration as it is written, None if it names no agents.

    Args:
        directory: the model's.
        config_name: use ``configs/<name>.pbtxt`` where it exists.
        config_override: the one to use instead of what lies on disk.

    Raises:
        HalimedeError: it cannot be read.
    """
    if config_override is not None:
        config = config_override.read()
    else:
        path = config_path(directory, config_name)
        if not path.exists():
            return None
        text = read_text(path)
        if "model_repository_agents" not in text:
            return None
        config = parse_text(text, str(path))
    return config if config.model_repository_agents.agents else None


def declared_agents(config: ModelConfig) -> list[DeclaredAgent]:
    """The agents that a configuration names, in order."""
    return [
        DeclaredAgent(agent.name, dict(agent.parameters)) for agent in config.model_repository_agents.agents
    ]


def agent_file(name: str, directory: Path) -> Path:
    """The file with the code of an agent.

    Args:
        name: the agent.
        directory: where agents are: each in a directory of its name.

    Raises:
        InvalidArgumentError: there is none.
    """
    if is_directory_name(name):
        file = directory / name / AGENT_FILE
        if file.is_file():
            return file.absolute()
        if name in BUILT_IN:
            return BUILT_IN[name]
        library = directory / name / f"libtritonrepoagent_{name}.so"
        if library.exists():
            raise InvalidArgumentError(
                f"'{library}' is an agent for Triton's C API, which this server does not load: agents are Python "
                f"classes, in {file}"
            )
    raise InvalidArgumentError(
        f"unable to find '{AGENT_FILE}' for repo agent '{name}', searched: {directory}/{name}"
    )
