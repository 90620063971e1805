"""Looking at the repository agents that a configuration names, as far as that changes nothing.

The agent `checksum` only reads, so it is run. Others are not: they may do anything, and what they make of the model's
files is not known before the server loads it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate import Problem
from halimede.core.errors import HalimedeError
from halimede.repository.agents.call import Action, AgentCall, call_agent
from halimede.repository.agents.declared import AGENT_FILE, BUILT_IN, agent_file, declared_agents
from halimede.repository.agents.program import CLASS

_CHECKSUM_TIMEOUT_S = 600.0


def agent_problems(config: ModelConfig, directory: Path, agent_directory: Path) -> Iterator[Problem]:
    """What is wrong with the agents of a model.

    Args:
        config: the model's configuration.
        directory: its directory.
        agent_directory: where agents are, each in a directory of its name.
    """
    for index, agent in enumerate(declared_agents(config)):
        where = f"model_repository_agents.agents[{index}]"
        try:
            file = agent_file(agent.name, agent_directory)
        except HalimedeError as error:
            place = agent_directory / (agent.name or "NAME") / AGENT_FILE
            fix = f"put its class at {place}, or name the directory of agents with --repoagent-directory"
            yield Problem(config.name, f"{where}.name", error.message, fix)
            continue
        if file not in BUILT_IN.values():
            yield from _source_problems(config.name, where, file)
            continue
        call = AgentCall(
            agent.name, file, Action.LOAD, config.name, directory, {}, agent.parameters, {}, directory
        )
        try:
            call_agent(call, _CHECKSUM_TIMEOUT_S)
        except HalimedeError as error:
            yield Problem(config.name, where, error.message)


def may_be_replaced(config: ModelConfig) -> bool:
    """Whether agents may put other files in the place of the model's."""
    return any(agent.name not in BUILT_IN for agent in declared_agents(config))


def _source_problems(name: str, where: str, file: Path) -> Iterator[Problem]:
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (OSError, SyntaxError, ValueError) as error:
        yield Problem(name, where, f"{type(error).__name__}: {error}")
        return
    if not any(isinstance(node, ast.ClassDef) and node.name == CLASS for node in ast.walk(tree)):
        yield Problem(
            name, where, f"{file} defines no class {CLASS}", f"class {CLASS}: with a method load(self, model)"
        )
