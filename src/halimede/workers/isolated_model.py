"""Models of in-process backends whose instances have processes of their own: the server's side.

Each instance is a worker process, as that of a Python model, in which the backend opens the model and makes this one
instance. The server itself never imports the framework, and all that the model took is given back when the process
ends. The process that completes the configuration becomes that of the first instance.
"""

from pathlib import Path
from typing import Any, Final

import halimede
from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.host_policies import HostPolicy
from halimede.workers.host import Launch, WorkerHost, WorkerName, policy_settings
from halimede.workers.instance import WorkerInstance
from halimede.workers.worker import Worker
from halimede_worker.messages import wire

_HOSTED: Final = "halimede.workers.isolated_worker:IsolatedWorkerModel"


class IsolatedModel(BackendModel):
    """A version of a model that runs in worker processes."""

    creates_side_by_side = True

    def __init__(self, source: ModelSource, options: BackendOptions, host: WorkerHost) -> None:
        """Nothing is opened yet.

        Args:
            source: the version.
            options: what the command line says; its instances share the threads out.
            host: where they will run.
        """
        super().__init__(source, options)
        self._host = host
        self._first = _first_instance(source.config)
        self._completed: Worker | None = None
        self._settings = {
            "model_name": source.name,
            "model_directory": str(source.directory),
            "version_directory": str(source.version_directory),
            "version": source.version,
            "hosted": _HOSTED,
            "hosted_directory": str(Path(halimede.__file__).parent.parent),
            "backend": {
                "settings": dict(options.settings),
                "cpu_threads": max(1, options.cpu_threads // _count_instances(source.config)),
                "gpus": list(options.gpus),
                "verbose": options.verbose,
            },
        }

    def complete_config(self) -> None:
        """Let the backend, in the process of the first instance, fill in the configuration."""
        completed = self._host.wait(self._complete_config(self.source.config.SerializeToString()))
        self.source.config.CopyFrom(ModelConfig.FromString(completed))

    async def _complete_config(self, config: bytes) -> bytes:
        worker = await Worker.start(
            self._host, self._worker_name(self._first), self._launch(self._first), _ignore, _ignore, _nothing
        )
        try:
            completed: bytes = await worker.ask((wire.COMPLETE_CONFIG, config))
        except BaseException:
            await worker.stop(graceful=False)
            raise
        self._completed = worker
        return completed

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance whose process runs, in which the configuration was checked and the instance was made."""
        config = _config_of(self.source.config, spec)
        arguments: dict[str, Any] = {
            "config": config.SerializeToString(),
            "name": spec.name,
            "index": spec.index,
            "kind": spec.kind,
            "device": spec.device,
            "model_version": str(self.source.version),
        }
        worker: Worker | None = None
        if spec.name == self._first:
            worker, self._completed = self._completed, None
            if worker is not None and spec.policy is not None:  # its threads run elsewhere
                self._host.wait(worker.stop(graceful=False))
                worker = None
        instance = WorkerInstance(
            self._host,
            self._worker_name(spec.name),
            self._launch(spec.name, spec.policy),
            arguments,
            tuple(output.name for output in config.output),
            decoupled=config.model_transaction_policy.decoupled,
            worker=worker,
        )
        self._host.wait(instance.start())
        return instance

    def close(self) -> None:
        """End the process that has completed the configuration, if it runs no instance."""
        worker, self._completed = self._completed, None
        if worker is not None:
            self._host.wait(worker.stop(graceful=False))

    def _launch(self, instance: str, policy: HostPolicy | None = None) -> Launch:
        return Launch({**self._settings, "instance_name": instance, **policy_settings(policy)})

    def _worker_name(self, instance: str) -> WorkerName:
        return WorkerName(self.source.name, self.source.version, instance)


def _count_instances(config: ModelConfig) -> int:
    return sum(max(1, group.count) * max(1, len(group.gpus)) for group in config.instance_group) or 1


def _first_instance(config: ModelConfig) -> str:
    """What the first instance is called: a backend changes nothing of the groups."""
    return f"{config.instance_group[0].name if config.instance_group else config.name}_0"


def _config_of(config: ModelConfig, spec: InstanceSpec) -> ModelConfig:
    """The configuration as the process of one instance has it, which knows of no other."""
    own = ModelConfig()
    own.CopyFrom(config)
    groups = [group for group in config.instance_group if spec.name.rpartition("_")[0] == group.name]
    del own.instance_group[:]
    for group in groups[:1]:
        alone = own.instance_group.add()
        alone.CopyFrom(group)
        alone.count = 1
        if spec.kind == "KIND_GPU":
            alone.gpus[:] = [spec.device]
    return own


def _ignore(_: object) -> None:
    """What a process says that only completes a configuration does not matter; that it ended is seen later."""


def _nothing() -> None:
    """Models of in-process backends call no others."""
