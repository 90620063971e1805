"""Backend `python`: models that are a Python class, `TritonPythonModel`, each instance in a process of its own."""

import json
import logging
from pathlib import Path
from threading import Lock
from typing import Any, Final

from google.protobuf import json_format

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.config.document import config_document
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.errors import InternalError
from halimede.workers.encoding import encode_states
from halimede.workers.environments import Environment
from halimede.workers.host import Launch, WorkerHost, WorkerName, policy_settings
from halimede.workers.instance import WorkerInstance
from halimede.workers.output_checks import OutputChecks
from halimede.workers.python_settings import PythonSettings
from halimede.workers.reshaping import Reshaping
from halimede.workers.worker import Worker
from halimede_worker.messages import wire

logger = logging.getLogger("halimede")

_BACKEND_ENVIRONMENT: Final = "pb_exec_env_model.py.tar.gz"


class PythonModel(BackendModel):
    """A version of a Python model."""

    creates_side_by_side = True

    def __init__(
        self,
        source: ModelSource,
        options: BackendOptions,
        host: WorkerHost,
        backend_directory: Path | None = None,
    ) -> None:
        """Open the model.

        Args:
            source: the version.
            options: what the command line says.
            host: where its instances will run.
            backend_directory: for a model of a backend that is itself written in Python: where its `model.py` is, and
                perhaps its environment, `pb_exec_env_model.py.tar.gz`.

        Raises:
            HalimedeError: the model's file is not there, or a parameter is wrong.
        """
        super().__init__(source, options)
        self._host = host
        self._lock = Lock()
        self._checks: OutputChecks | None = None  # of all instances
        self._settings = PythonSettings.read(source.config, options.settings)
        settings = self._launch_settings(backend_directory)
        packed = None if backend_directory is None else backend_directory / _BACKEND_ENVIRONMENT
        self._environment = self._prepare_environment(packed)
        self._launch = Launch(settings)
        if self._environment is not None:
            self._launch = Launch(settings, self._environment.python, self._environment.variables)

    def _prepare_environment(self, packed: Path | None) -> Environment | None:
        """The environment that the model brings, or `packed` if that is there; None for the server's own."""
        return self._host.environments.prepare(self.source, self.options, packed)

    def _launch_settings(self, backend_directory: Path | None) -> dict[str, Any]:
        source = self.source
        if backend_directory is not None:
            path = backend_directory / "model.py"
        else:
            file_name = source.config.default_model_filename or "model.py"
            if not file_name.endswith(".py"):
                raise InternalError(f"Model name must end with '.py'. Model name is \"{file_name}\".")
            path = source.version_directory / file_name
        if not path.is_file():
            raise InternalError(f"Python model file not found in '{path}'")
        return {
            "model_name": source.client_name,
            "instance_name": source.name,
            "version_directory": str(source.version_directory),
            "model_directory": str(source.directory),
            "model_file": str(path),
        }

    def complete_config(self) -> None:
        """Let the model's `auto_complete_config`, in a process of its own, fill in the configuration.

        As in Triton, what it may not change stays, and a result that is no configuration is ignored.

        Raises:
            InternalError: the function failed, or its result is no object at all.
        """
        config = self.source.config
        document = json.loads(self._host.wait(self._complete_config(json.dumps(config_document(config)))))
        if not isinstance(document, dict):
            msg = (
                f"attempt to access non-existing object member 'default_model_filename': the configuration that "
                f"auto_complete_config in model '{config.name}' made is no object"
            )
            raise InternalError(msg)
        completed = ModelConfig()
        try:
            json_format.ParseDict(document, completed)
        except (json_format.ParseError, TypeError, ValueError) as error:
            logger.error(
                "auto_complete_config function in model '%s' made a configuration that is none, which is ignored: %s",
                config.name,
                error,
            )
            return
        _take_over(completed, config)

    async def _complete_config(self, document: str) -> str:
        name = WorkerName(self.source.name, self.source.version, self.source.name)
        worker = await Worker.start(self._host, name, self._launch, _ignore, _ignore, _nothing)
        try:
            return str(await worker.ask((wire.COMPLETE_CONFIG, document)))
        finally:
            await worker.stop(graceful=False)

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance whose process runs and whose model has initialized."""
        source = self.source
        signature = Signature.from_config(source.config)
        with self._lock:  # instances are created side by side
            if self._checks is None:
                self._checks = OutputChecks(source.client_name, signature, strict=self._settings.strict)
        arguments = {
            "model_config": json.dumps(config_document(source.config), separators=(",", ":")),
            "model_instance_kind": spec.kind.removeprefix("KIND_"),
            "model_instance_name": spec.name,
            "model_instance_device_id": str(spec.device),
            "model_repository": str(source.directory),
            "model_version": str(source.version),
            "model_name": source.client_name,
        }
        launch = Launch(
            {**self._launch.settings, "instance_name": spec.name, **policy_settings(spec.policy)},
            self._launch.python,
            self._launch.environment,
        )
        instance = self._make_instance(
            spec,
            self._host,
            WorkerName(source.name, source.version, spec.name),
            launch,
            arguments,
            tuple(output.name for output in source.config.output),
            decoupled=source.config.model_transaction_policy.decoupled,
            reshaping=Reshaping.of(signature),
            checks=self._checks,
            timeout_s=self._settings.execution_timeout_s,
            slow_s=self._settings.slow_s,
            concurrency=self._settings.concurrency,
            states=encode_states(source.config, source.directory),
        )
        self._host.wait(instance.start())
        return instance

    def _make_instance(self, spec: InstanceSpec, *arguments: Any, **options: Any) -> WorkerInstance:
        """An instance that is not started yet, as `WorkerInstance` takes it."""
        return WorkerInstance(*arguments, **options)

    def close(self) -> None:
        """Let go of the environment."""
        if self._environment is not None:
            self._environment.release()
            self._environment = None


def _take_over(completed: ModelConfig, config: ModelConfig) -> None:
    """Change in a configuration what a model may complete."""
    config.max_batch_size = completed.max_batch_size
    del config.input[:], config.output[:]
    config.input.extend(completed.input)
    config.output.extend(completed.output)
    scheduler = completed.WhichOneof("scheduling_choice")
    if scheduler is not None and config.WhichOneof("scheduling_choice") is None:
        getattr(config, scheduler).CopyFrom(getattr(completed, scheduler))
    if completed.HasField("model_transaction_policy"):
        config.model_transaction_policy.CopyFrom(completed.model_transaction_policy)


def _ignore(_: object) -> None:
    """What a worker that only completes a configuration says beside its answer does not matter."""


def _nothing() -> None:
    """A model that only completes a configuration cannot call."""
