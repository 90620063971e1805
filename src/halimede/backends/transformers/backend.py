"""Causal language models, as `transformers` saves them: a directory with config.json, safetensors and a tokenizer."""

import os
from pathlib import Path
from typing import Any, Final

os.environ.setdefault(
    "HF_HUB_OFFLINE", "1"
)  # what is not in the model's directory is not looked for elsewhere

import torch
import transformers
from transformers.utils import logging as transformers_logging

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.language import tensors
from halimede.backends.language.instance import LanguageInstance
from halimede.backends.language.settings import (
    LanguageSettings,
    context_of,
    end_tokens,
    read_generation_config,
    tool_format_of,
)
from halimede.backends.language.tokenizer import HuggingFaceTokenizer
from halimede.backends.parameters import choice_parameter
from halimede.backends.transformers.abilities import Ability, logger, try_abilities
from halimede.backends.transformers.engine import TransformersEngine
from halimede.backends.transformers.forward import Forward
from halimede.backends.transformers.grammars import Grammars
from halimede.core.errors import InvalidArgumentError, NotFoundError

_DTYPES: Final = {name: name for name in ("auto", "float32", "bfloat16", "float16")}


class TransformersModel(BackendModel):
    """A causal language model."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        self._settings = LanguageSettings.of(source.config)
        self._dtype = choice_parameter(source.config, "dtype", _DTYPES) or "auto"
        transformers_logging.disable_progress_bar()
        self._directory = source.version_directory
        self._config = _read_config(self._directory)
        self._tokenizer = HuggingFaceTokenizer(self._directory)
        self._defaults, ends = read_generation_config(self._directory)
        own = self._config.get_text_config()
        self._ends = self._tokenizer.end_tokens | ends | end_tokens(getattr(own, "eos_token_id", None))
        self._tool_format = tool_format_of(self._settings, self._directory)
        self._grammars = Grammars(self._tokenizer.own, self._ends)
        self._context = context_of(
            source.config, self._settings, getattr(own, "max_position_embeddings", None)
        )

    def complete_config(self) -> None:
        """List the tensors, which are the same for all models."""
        tensors.complete(self.source.config)

    def check_config(self) -> None:
        """Hold the complete configuration against the tensors."""
        tensors.check(self.source.config)

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance with the weights on the device that `spec` names."""
        device = f"cuda:{spec.device}" if spec.kind == "KIND_GPU" else "cpu"
        return LanguageInstance(
            lambda: self._engine(device),
            self._tokenizer,
            self._defaults,
            self._context,
            self._settings.max_texts,
            self._tool_format,
        )

    def _engine(self, device: str) -> TransformersEngine:
        torch.set_num_threads(self.options.cpu_threads)
        model = _load_weights(self._directory, self._config, self._dtype).to(device).eval()
        forward = Forward(model)
        plain = transformers.DynamicCache

        def own() -> Any:
            return transformers.DynamicCache(config=model.config)

        ability = try_abilities(forward, plain, own, model.dtype)
        logger.info("model '%s': several texts are written %s", self.source.name, ability.value)
        make_cache = plain if ability is Ability.TOGETHER else own
        return TransformersEngine(
            forward,
            ability,
            make_cache,
            self._settings.step_tokens,
            self._ends,
            self._grammars,
            lambda word: self._tokenizer.encode(word, special=False),
        )


def _read_config(directory: Path) -> Any:
    """What `config.json` says.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it is not that of a model that `transformers` knows.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise NotFoundError(f"there is no file '{path}': a model directory of transformers has one")
    try:
        return transformers.AutoConfig.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # files may be anything, and each kind fails in its own way
        raise InvalidArgumentError(f"cannot use '{path}': {type(error).__name__}: {error}") from error


def _load_weights(directory: Path, config: Any, dtype: str) -> Any:
    """The model.

    Raises:
        InvalidArgumentError: it cannot be loaded.
    """
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(
            directory, config=config, dtype=dtype, local_files_only=True, use_safetensors=True
        )
    except MemoryError:
        raise
    except Exception as error:  # as above
        msg = f"cannot load the model in '{directory}': {type(error).__name__}: {error}"
        raise InvalidArgumentError(msg) from error
