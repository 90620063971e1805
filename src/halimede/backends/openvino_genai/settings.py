"""Settings of a model that OpenVINO GenAI runs: those of its scheduler, under its names, and the device."""

from dataclasses import dataclass
from typing import Any, Final

import openvino_genai

from halimede.backends.language.settings import STEP_TOKENS, LanguageSettings
from halimede.backends.parameters import choice_parameter, integer_parameter, text_parameter
from halimede.config.model_config_pb2 import ModelConfig

_SWITCH: Final = {"true": "true", "false": "false"}
_PRECISIONS: Final = {name: name for name in ("f32", "bf16", "f16", "u8", "u4")}


@dataclass(frozen=True, slots=True)
class GenAISettings:
    """How a model is run.

    Attributes:
        language: what all language models have.
        device: of OpenVINO.
        scheduler: the limits of the pipeline.
        properties: of OpenVINO, for the device.
    """

    language: LanguageSettings
    device: str
    scheduler: Any
    properties: dict[str, str | int]

    @classmethod
    def of(cls, config: ModelConfig, cpu_threads: int) -> "GenAISettings":
        """The settings of a configuration.

        Args:
            config: the configuration.
            cpu_threads: threads that an instance may use.

        Raises:
            InvalidArgumentError: a parameter has no such value.
        """
        language = LanguageSettings.of(config)
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_seqs = language.max_texts
        if STEP_TOKENS in config.parameters:
            scheduler.max_num_batched_tokens = language.step_tokens
        for key in ("cache_size", "num_kv_blocks"):
            value = integer_parameter(config, key, 1)
            if value is not None:
                setattr(scheduler, key, value)
        for key in ("enable_prefix_caching", "dynamic_split_fuse"):
            switch = choice_parameter(config, key, _SWITCH)
            if switch is not None:
                setattr(scheduler, key, switch == "true")
        device = text_parameter(config, "TARGET_DEVICE") or "CPU"
        properties: dict[str, str | int] = {"INFERENCE_NUM_THREADS": cpu_threads} if device == "CPU" else {}
        for key in ("INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION"):
            precision = choice_parameter(config, key, _PRECISIONS)
            if precision is not None:
                properties[key] = precision
        return cls(language, device, scheduler, properties)
