"""The engine: it repeats the prompt, token by token, and then ends."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from ...config import VllmConfig
from ...engine.arg_utils import AsyncEngineArgs
from ...engine.protocol import EngineClient
from ...exceptions import QueueOverflowError, VLLMValidationError
from ...lora.request import LoRARequest
from ...outputs import CompletionOutput, Logprob, PoolingOutput, PoolingRequestOutput, RequestOutput
from ...pooling_params import PoolingParams
from ...sampling_params import RequestOutputKind, SamplingParams
from ..metrics.loggers import StatLoggerFactory
from ..metrics.stats import FinishedRequestStats, IterationStats, SchedulerStats
from .exceptions import EngineDeadError, EngineGenerateError

DIES = "the engine dies"
FAILS = "the request fails"
WRONG = "the request is wrong"
BUSY = "too many requests"
BEGIN, END, _SPECIAL = 1, 2, 3
_STEP_S = 0.002


class Tokenizer:
    """Bytes as tokens."""

    bos_token = "<s>"
    eos_token_id = END
    max_chars_per_token = len(bos_token)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text."""
        begin = text.startswith(self.bos_token)
        text = text.removeprefix(self.bos_token)
        tokens = [byte + _SPECIAL for byte in text.encode()]
        return [BEGIN, *tokens] if begin or add_special_tokens else tokens

    def decode(self, tokens: Iterable[int], skip_special_tokens: bool = True, **options: Any) -> str:
        """The text of tokens."""
        return bytes(each - _SPECIAL for each in tokens if each >= _SPECIAL).decode(errors="replace")


class AsyncLLM(EngineClient):
    """The engine."""

    def __init__(
        self, vllm_config: VllmConfig, stat_loggers: list[StatLoggerFactory] | None, log_stats: bool
    ) -> None:
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.errored = False
        self._running: set[str] = set()
        self._tokenizer = Tokenizer()
        self._loggers = [make(vllm_config, 0) for make in stat_loggers or []]
        for logger in self._loggers:
            logger.log_engine_initialized()

    @classmethod
    def from_vllm_config(
        cls,
        vllm_config: VllmConfig,
        start_engine_loop: bool = True,
        usage_context: Any = None,
        stat_loggers: list[StatLoggerFactory] | None = None,
        enable_log_requests: bool = False,
        aggregate_engine_logging: bool = False,
        disable_log_stats: bool = False,
    ) -> "AsyncLLM":
        """An engine."""
        return cls(vllm_config, stat_loggers, not disable_log_stats)

    @classmethod
    def from_engine_args(
        cls,
        engine_args: AsyncEngineArgs,
        start_engine_loop: bool = True,
        usage_context: Any = None,
        stat_loggers: list[StatLoggerFactory] | None = None,
    ) -> "AsyncLLM":
        """An engine."""
        return cls(engine_args.create_engine_config(), stat_loggers, not engine_args.disable_log_stats)

    async def get_supported_tasks(self) -> tuple[str, ...]:
        """What it can do."""
        return ("embed",) if self.model_config.model == "pooler" else ("generate",)

    async def get_tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return self._tokenizer

    async def reset_mm_cache(self) -> None:
        """There is none."""

    @property
    def dead_error(self) -> BaseException:
        """What it died of."""
        return EngineDeadError()

    async def check_health(self) -> None:
        """Raise if it is dead."""
        if self.errored:
            raise self.dead_error

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """End requests."""
        self._running -= {request_id} if isinstance(request_id, str) else set(request_id)

    def shutdown(self, timeout: float | None = None) -> None:
        """End it."""
        self.errored = True

    async def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        lora_request: LoRARequest | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """What it writes, bit by bit."""
        await self.check_health()
        text, tokens = self._prompt(prompt)
        context = self.model_config.max_model_len
        if len(tokens) >= context:
            raise ValueError(f"The decoder prompt is longer than the maximum model length of {context}.")
        while len(self._running) >= self.vllm_config.scheduler_config.max_num_seqs:  # noqa: ASYNC110
            await asyncio.sleep(_STEP_S)  # sleeps: a step of the engine
        self._running.add(request_id)
        try:
            async for output in self._written(text, tokens, sampling_params, request_id, lora_request):
                yield output
        finally:
            self._running.discard(request_id)
            self._record(IterationStats())

    async def _written(
        self,
        prompt: str | None,
        tokens: list[int],
        params: SamplingParams,
        request_id: str,
        lora: LoRARequest | None,
    ) -> AsyncGenerator[RequestOutput, None]:
        told = self._tokenizer.decode(tokens)
        own = self._tokenizer.encode(f"{lora.lora_name}:{told}" if lora else told, False)
        room = self.model_config.max_model_len - len(tokens)
        room = room if params.max_tokens is None else min(room, params.max_tokens)
        interval = self.vllm_config.scheduler_config.stream_interval
        made: list[int] = []
        sent = 0
        began = last = time.monotonic()
        finish: str | None = None
        while finish is None:
            await asyncio.sleep(_STEP_S)  # sleeps: a step of the engine
            if DIES in told:
                self.errored = True
            await self.check_health()
            if FAILS in told:
                raise EngineGenerateError("the request failed")
            if WRONG in told:
                raise VLLMValidationError("it cannot be 7", parameter="min_tokens", value=7)
            if BUSY in told:
                raise QueueOverflowError
            stats = IterationStats(num_generation_tokens=1)
            now = time.monotonic()
            if made:
                stats.inter_token_latencies_iter.append(now - last)
            else:
                stats.time_to_first_tokens_iter.append(now - began)
                stats.num_prompt_tokens = len(tokens)
            last = now
            made.append(own[len(made) % len(own)] if len(made) < len(own) or params.ignore_eos else END)
            if request_id not in self._running:
                finish = "abort"
            elif made[-1] == END or made[-1] in (params.stop_token_ids or ()):
                finish = "stop"
            elif len(made) >= room:
                finish = "length"
            if finish:
                stats.finished_requests.append(
                    FinishedRequestStats(finish, now - began, len(tokens), len(made))
                )
                stats.n_params_iter.append(params.n)
            self._record(stats)
            delta = params.output_kind is RequestOutputKind.DELTA
            if finish or (len(made) - sent >= interval and params.output_kind.value < 2):
                yield self._output(request_id, prompt, tokens, made[sent if delta else 0 :], params, finish)
                sent = len(made)

    def _output(
        self,
        request_id: str,
        prompt: str | None,
        tokens: list[int],
        made: list[int],
        params: SamplingParams,
        finish: str | None,
    ) -> RequestOutput:
        text = self._tokenizer.decode(made).rstrip("\N{REPLACEMENT CHARACTER}") if params.detokenize else ""
        logprobs = None
        if params.logprobs is not None:
            logprobs = [{each: Logprob(-0.5, 1, self._tokenizer.decode([each]))} for each in made]
            for token, alternatives in zip(made, logprobs, strict=True):
                alternatives.update(
                    {token + rank: Logprob(-rank, rank + 1) for rank in range(1, params.logprobs)}
                )
        total = None if logprobs is None else -0.5 * len(logprobs)
        made_text = CompletionOutput(0, text, [*made], total, logprobs, finish)
        of_prompt: Any = None
        if params.prompt_logprobs is not None:
            of_prompt = [
                None,
                *({each: Logprob(-0.25, 1, self._tokenizer.decode([each]))} for each in tokens[1:]),
            ]
        return RequestOutput(request_id, prompt, tokens, of_prompt, [made_text], finish is not None)

    async def encode(
        self, prompt: Any, pooling_params: PoolingParams, request_id: str, **options: Any
    ) -> AsyncGenerator[PoolingRequestOutput[PoolingOutput], None]:
        """An embedding: how long the prompt is, and 1, 2, …"""
        text, tokens = self._prompt(prompt)
        if DIES in (text or ""):
            self.errored = True
        await self.check_health()
        if FAILS in (text or ""):
            raise ValueError("the request failed")
        size = pooling_params.dimensions or 4
        made = PoolingOutput([float(len(tokens)), *map(float, range(1, size))])
        yield PoolingRequestOutput(request_id, made, tokens, True)

    def _prompt(self, prompt: Any) -> tuple[str | None, list[int]]:
        if isinstance(prompt, str):
            prompt = {"prompt": prompt}
        if "prompt_token_ids" in prompt:
            return None, prompt["prompt_token_ids"]
        return prompt["prompt"], self._tokenizer.encode(prompt["prompt"])

    def _record(self, stats: IterationStats) -> None:
        running = len(self._running)
        scheduler = SchedulerStats(running, 0, running / 10)
        for logger in self._loggers:
            logger.record(scheduler_stats=scheduler, iteration_stats=stats)
