"""Stands for vLLM in tests."""

from .engine.arg_utils import AsyncEngineArgs
from .inputs import TokensPrompt
from .pooling_params import PoolingParams
from .sampling_params import SamplingParams
from .v1.engine.async_llm import AsyncLLM as AsyncLLMEngine

__all__ = ["AsyncEngineArgs", "AsyncLLMEngine", "PoolingParams", "SamplingParams", "TokensPrompt"]
__version__ = "0.0.stand.in"
