"""Language models as OpenVINO GenAI has them: openvino_model.xml, a tokenizer and a detokenizer in one directory."""

import logging
from typing import Any

import openvino_genai

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.language import tensors
from halimede.backends.language.instance import LanguageInstance
from halimede.backends.language.settings import (
    context_of,
    end_tokens,
    read_generation_config,
    read_object,
    tool_format_of,
)
from halimede.backends.openvino_genai.draft import read_draft
from halimede.backends.openvino_genai.engine import GenAIEngine
from halimede.backends.openvino_genai.grammars import GenAIGrammars
from halimede.backends.openvino_genai.settings import GenAISettings
from halimede.backends.openvino_genai.tokenizer import GenAITokenizer
from halimede.core.errors import InvalidArgumentError, NotFoundError

logger = logging.getLogger("halimede")


class GenAIModel(BackendModel):
    """A language model."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        self._settings = GenAISettings.of(source.config, options.cpu_threads)
        directory = self._directory = source.version_directory
        if not (directory / "openvino_model.xml").is_file():
            raise NotFoundError(f"there is no file '{directory / 'openvino_model.xml'}'")
        self._draft = read_draft(source.config, directory)
        document = read_object(directory / "config.json")
        self._tokenizer = GenAITokenizer(directory)
        self._tool_format = tool_format_of(self._settings.language, directory)
        self._grammars = GenAIGrammars(self._tokenizer.own)
        self._defaults, ends = read_generation_config(directory)
        self._ends = self._tokenizer.end_tokens | ends | end_tokens(document.get("eos_token_id"))
        told = document.get("max_position_embeddings")
        self._context = context_of(source.config, self._settings.language, told)

    def complete_config(self) -> None:
        """List the tensors, which are the same for all models."""
        tensors.complete(self.source.config)

    def check_config(self) -> None:
        """Hold the complete configuration against the tensors."""
        tensors.check(self.source.config)

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance with weights and cache of its own."""
        return LanguageInstance(
            self._engine,
            self._tokenizer,
            self._defaults,
            self._context,
            self._settings.language.max_texts,
            self._tool_format,
        )

    def _engine(self) -> GenAIEngine:
        draft_tokens = 0 if self._draft is None else self._draft.tokens
        scheduler = self._settings.scheduler
        fixed = bool(scheduler.cache_size or scheduler.num_kv_blocks)
        if fixed and scheduler.enable_prefix_caching:
            logger.warning(
                "model '%s': with enable_prefix_caching and a cache of fixed size, OpenVINO GenAI may write wrong "
                "texts when the cache is full and clients leave; make it large enough, or leave one of both out",
                self.source.name,
            )
        return GenAIEngine(self._pipeline, self._ends, self._grammars, draft_tokens, fixed_cache=fixed)

    def _pipeline(self) -> Any:
        settings = self._settings
        properties: dict[str, Any] = dict(settings.properties)
        try:
            if self._draft is not None:
                properties["draft_model"] = openvino_genai.draft_model(
                    self._draft.directory, settings.device, **settings.properties
                )
            return openvino_genai.ContinuousBatchingPipeline(
                self._directory, settings.scheduler, settings.device, properties
            )
        except RuntimeError as error:
            beside = f" with the draft model in '{self._draft.directory}'" if self._draft is not None else ""
            msg = f"OpenVINO GenAI cannot load the model in '{self._directory}'{beside}: {error}"
            raise InvalidArgumentError(msg) from error
