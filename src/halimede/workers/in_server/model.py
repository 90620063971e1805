"""Python models whose instances run in the server's process: `isolation: none`."""

from pathlib import Path
from typing import Any

from halimede.backends.base import InstanceSpec
from halimede.backends.isolation import ISOLATION
from halimede.core.errors import InvalidArgumentError
from halimede.workers.environments import PARAMETER, Environment
from halimede.workers.host import WorkerName
from halimede.workers.in_server.instance import ServerInstance
from halimede.workers.in_server.worker import ServerWorker
from halimede.workers.instance import WorkerInstance
from halimede.workers.python_model import PythonModel
from halimede.workers.python_settings import EXECUTION_TIMEOUT
from halimede.workers.virtual_environments import requirements_of


class ServerPythonModel(PythonModel):
    """A version of a Python model that runs in the server's process."""

    def _prepare_environment(self, packed: Path | None) -> Environment | None:
        """None: the server's own.

        Raises:
            InvalidArgumentError: the model brings one, or asks for what only a process can do.
        """
        source, parameters = self.source, self.source.config.parameters
        reason = ""
        if PARAMETER in parameters:
            reason = f"the parameter {PARAMETER} asks for an environment of its own"
        elif packed is not None and packed.is_file():
            reason = f"'{packed}' is an environment of its own"
        elif (requirements := requirements_of(source)) is not None:
            reason = f"'{requirements}' asks for an environment of its own"
        elif EXECUTION_TIMEOUT in parameters:
            reason = f"the parameter {EXECUTION_TIMEOUT} asks for executions that can be ended"
        if reason:
            raise InvalidArgumentError(
                f"model '{source.config.name}' cannot run in the server's process: {reason}. Remove that, or "
                f"remove the line 'parameters {{ key: \"{ISOLATION}\" ... }}' from its config.pbtxt"
            )
        return None

    async def _complete_config(self, document: str) -> str:
        name = WorkerName(self.source.name, self.source.version, self.source.name)
        worker = ServerWorker(self._host, name, dict(self._launch.settings), _ignore, _nothing)
        try:
            return await worker.complete_config(document)
        finally:
            await worker.stop(graceful=False)

    def _make_instance(self, spec: InstanceSpec, *arguments: Any, **options: Any) -> WorkerInstance:
        return ServerInstance(*arguments, **options, policy=spec.policy)


def _ignore(_: object) -> None:
    """A model that only completes a configuration runs nothing."""


def _nothing() -> None:
    """Nor does it call."""
