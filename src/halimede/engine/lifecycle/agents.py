"""The repository agents of a model: what they do while it comes and goes.

    LOAD ──► LOAD_COMPLETE ──► UNLOAD ──► UNLOAD_COMPLETE
      │
      └────► LOAD_FAIL

Agents load and unload in the order of the configuration, and complete or fail in the reverse one. Each action runs in
a process of its own with a limit on its time. What fails at LOAD fails the load; later failures are only logged, as the
model serves, or is gone, by then.
"""

import asyncio
import logging
import shutil
import tempfile
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf import json_format

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.override import ConfigOverride
from halimede.core.background_threads import BackgroundThreads
from halimede.core.errors import HalimedeError
from halimede.engine.settings import EngineSettings
from halimede.repository.agents.call import Action, AgentAnswer, AgentCall, AgentError, call_agent
from halimede.repository.agents.declared import (
    DeclaredAgent,
    agent_file,
    declared_agents,
    read_config_with_agents,
)
from halimede.repository.private_directories import PrivateDirectory

T = TypeVar("T")

logger = logging.getLogger("halimede")

_MAX_AT_ONCE = 32
"""So many agents act at once: each has a process, and hundreds of models may be loaded at start."""


@dataclass(slots=True)
class _Agent:
    """One agent of a model.

    Attributes:
        declared: what the configuration says of it.
        file: its code.
        location: where the model's files are, as far as it knows.
        state: what it remembers.
        actions: those that it does anything at.
    """

    declared: DeclaredAgent
    file: Path
    location: Path
    state: Mapping[str, Any] = field(default_factory=dict)
    actions: frozenset[Action] = frozenset(Action)


class RepositoryAgents:
    """Starts the agents of models. Lives on the event loop."""

    def __init__(self, settings: EngineSettings, loop: AbstractEventLoop, disk: Executor) -> None:
        """Agents are where the settings say, and may take as long as they say; `disk` looks for them."""
        self._settings = settings
        self._loop = loop
        self._disk = disk
        self._threads = BackgroundThreads(_MAX_AT_ONCE, "halimede-agents")
        self._private: PrivateDirectory | None = None
        self._making = threading.Lock()

    async def load(
        self, name: str, directory: Path, config_override: ConfigOverride | None
    ) -> "AgentChain | None":
        """Have a model loaded by the agents that its configuration names; None if it names none.

        Args:
            name: the model.
            directory: its directory.
            config_override: the configuration to use instead of what lies on disk.

        Raises:
            AgentError: one refused the model or failed; those that had their turn were told.
            HalimedeError: the configuration cannot be read, or there is no such agent.
            OSError: a temporary directory cannot be made.
        """
        settings = self._settings
        config = await self._loop.run_in_executor(
            self._disk, read_config_with_agents, directory, settings.model_config_name, config_override
        )
        if config is None:
            return None
        agents = await self._loop.run_in_executor(
            self._disk, _find, config, settings.repoagent_directory, directory
        )
        scratch = await self._loop.run_in_executor(self._disk, self._make_scratch)
        chain = AgentChain(self, name, config, directory, agents, scratch)
        await chain.load()
        return chain

    async def run(self, work: Callable[[], T]) -> T:
        """What the work gives, which blocks."""
        return await self._loop.run_in_executor(self._threads, work)

    async def call(self, call: AgentCall) -> AgentAnswer:
        """What the agent has done.

        Raises:
            AgentError: it refused, failed or took too long.
        """
        return await self.run(partial(call_agent, call, self._settings.repoagent_timeout_secs))

    def _make_scratch(self) -> Path:
        """A new directory, in that of this server alone."""
        with self._making:
            if self._private is None:
                self._private = PrivateDirectory.make(Path(tempfile.gettempdir()), "halimede-agents-")
        return Path(tempfile.mkdtemp(dir=self._private.path))

    def close(self) -> None:
        """End the threads, when no agent has anything to do any more."""
        self._threads.shutdown()
        if self._private is not None:
            self._private.remove()


class AgentChain:
    """The agents of one load of a model, whose versions hold it until they are closed. Lives on the event loop.

    Attributes:
        location: the directory from which the model is to be loaded.
    """

    def __init__(
        self,
        runner: RepositoryAgents,
        name: str,
        config: ModelConfig,
        directory: Path,
        agents: Sequence[_Agent],
        scratch: Path,
    ) -> None:
        """Agents that have done nothing yet, with a directory of their own, which goes with them."""
        self.location = directory
        self._runner = runner
        self._name = name
        self._config = json_format.MessageToDict(config, preserving_proto_field_name=True)
        self._agents = agents
        self._scratch = scratch
        self._begun: list[_Agent] = []
        self._holders = 1
        self._unused = asyncio.Event()

    async def load(self) -> None:
        """Have each agent load the model.

        Raises:
            AgentError: one refused it or failed; those that had their turn were told, the last one first.
        """
        try:
            for agent in self._agents:
                agent.location = self.location
                self._begun.append(agent)
                await self._act(agent, Action.LOAD)
                self.location = agent.location
        except BaseException:
            await self.fail()
            raise

    async def complete(self) -> None:
        """The model serves."""
        await self._tell(Action.LOAD_COMPLETE, reversed(self._agents))

    async def fail(self) -> None:
        """The model could not be loaded."""
        await self._tell(Action.LOAD_FAIL, reversed(self._begun))
        await self._runner.run(partial(shutil.rmtree, self._scratch, ignore_errors=True))

    def hold(self) -> None:
        """A version was loaded."""
        self._holders += 1

    def release(self) -> None:
        """A version is closed."""
        self._holders -= 1
        if not self._holders:
            self._unused.set()

    async def end(self) -> None:
        """Have the agents unload the model, and return when all of it is gone."""
        await self._tell(Action.UNLOAD, self._agents)
        self.release()
        await self._unused.wait()
        await self._tell(Action.UNLOAD_COMPLETE, reversed(self._agents))
        await self._runner.run(partial(shutil.rmtree, self._scratch, ignore_errors=True))

    async def _tell(self, action: Action, agents: Iterable[_Agent]) -> None:
        """Have the agents do what cannot fail the model any more."""
        for agent in agents:
            try:
                await self._act(agent, action)
            except HalimedeError as error:
                logger.error("model '%s': %s", self._name, error)
            except Exception:
                logger.exception("agent '%s' of '%s' at %s", agent.declared.name, self._name, action.value)

    async def _act(self, agent: _Agent, action: Action) -> None:
        if action not in agent.actions:
            return
        call = AgentCall(
            agent=agent.declared.name,
            file=agent.file,
            action=action,
            model=self._name,
            location=agent.location,
            config=self._config,
            parameters=agent.declared.parameters,
            state=agent.state,
            scratch=self._scratch,
        )
        try:
            answer = await self._runner.call(call)
        except AgentError as error:
            agent.actions = error.actions
            raise
        agent.location = answer.location
        agent.state = answer.state
        agent.actions = answer.actions


def _find(config: ModelConfig, agent_directory: Path, directory: Path) -> list[_Agent]:
    """The agents that a configuration names.

    Raises:
        InvalidArgumentError: there is no such agent.
    """
    return [
        _Agent(declared, agent_file(declared.name, agent_directory), directory)
        for declared in declared_agents(config)
    ]
