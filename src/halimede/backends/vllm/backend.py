"""Language models as Triton's vLLM backend has them: a version's model.json has the arguments of vLLM's engine."""

from pathlib import Path

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.language import tensors
from halimede.backends.language.settings import LanguageSettings, choose_defaults, tool_format_of
from halimede.backends.vllm.arguments import read_arguments
from halimede.backends.vllm.cache_gauge import CacheGauge
from halimede.backends.vllm.devices import choose_devices
from halimede.backends.vllm.embedding import INPUTS
from halimede.backends.vllm.engine_loop import EngineLoop
from halimede.backends.vllm.instance import VllmInstance


class VllmModel(BackendModel):
    """A model that vLLM runs."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        self._arguments = read_arguments(source.version_directory)
        settings = LanguageSettings.of(source.config)
        model = Path(self._arguments["model"])
        self._tool_format = tool_format_of(settings, model if model.is_dir() else source.version_directory)

    def complete_config(self) -> None:
        """List the tensors, which are the same for all models."""
        tensors.complete(self.source.config, INPUTS)

    def check_config(self) -> None:
        """Hold the complete configuration against the tensors."""
        tensors.check(self.source.config, INPUTS)

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance with an engine of its own."""
        choose_devices(self.source.config, spec, self._arguments)
        gauge = CacheGauge()
        loop = EngineLoop(self._arguments, [gauge.make_logger])
        try:
            given = loop.engine.vllm_config.model_config.get_diff_sampling_param()
            return VllmInstance(loop, gauge, choose_defaults(given), self._tool_format)
        except BaseException:
            loop.close()
            raise
