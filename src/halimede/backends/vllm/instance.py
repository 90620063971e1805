"""An instance of a model of vLLM: it writes texts, or makes embeddings, as the model does."""

from itertools import count

from halimede.backends.batch import Send
from halimede.backends.language.instance import LanguageInstance
from halimede.backends.language.sampling import Sampling
from halimede.backends.language.tools.formats import ToolFormat
from halimede.backends.vllm.cache_gauge import CacheGauge
from halimede.backends.vllm.embedding import (
    EMBEDDING_REQUEST,
    EmbeddingRequest,
    embedding_response,
    read_embedding_request,
)
from halimede.backends.vllm.engine import VllmEngine
from halimede.backends.vllm.engine_loop import EngineLoop
from halimede.backends.vllm.errors import as_error
from halimede.backends.vllm.tokenizer import VllmTokenizer
from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse


class VllmInstance(LanguageInstance):
    """Writes texts and makes embeddings with an engine that runs. vLLM batches both.

    Args:
        loop: the engine; closed with the instance.
        gauge: told of its cache.
        defaults: how tokens are chosen if a request does not say.
        tool_format: how the model writes calls of tools; None if that is not known.
    """

    def __init__(
        self, loop: EngineLoop, gauge: CacheGauge, defaults: Sampling, tool_format: ToolFormat | None
    ) -> None:
        self._loop = loop
        self._tasks = frozenset(loop.run(loop.engine.get_supported_tasks()))
        self._numbers = count(1)
        config = loop.engine.vllm_config
        engine = VllmEngine(loop, gauge)
        super().__init__(
            lambda: engine,
            VllmTokenizer(loop.tokenizer()),
            defaults,
            config.model_config.max_model_len,
            config.scheduler_config.max_num_seqs,
            tool_format,
        )

        def died() -> None:
            engine.broken = engine.broken or f"vLLM's engine has died: {loop.engine.dead_error}"
            self.look()

        loop.watch(died)

    def close(self) -> None:
        """End the threads and the engine."""
        super().close()
        self._loop.close()

    def _begin(self, request: InferRequest, send: Send) -> None:
        try:
            self._begin_task(request, send)
        except Exception as error:  # each part of vLLM fails in its own way
            send(request, InferResponse(error=as_error(error)), True)

    def _begin_task(self, request: InferRequest, send: Send) -> None:
        embeds = EMBEDDING_REQUEST in request.inputs
        task = "embed" if embeds else "generate"
        if task not in self._tasks:
            msg = f"the model cannot {task}; vLLM says that it can {', '.join(sorted(self._tasks))}"
            raise InvalidArgumentError(msg)
        if not embeds:
            super()._begin(request, send)
            return
        asked = read_embedding_request(request)
        request.inputs = {}
        self._loop.begin(self._embed(request, send, asked, f"embedding-{next(self._numbers)}"))

    async def _embed(self, request: InferRequest, send: Send, asked: EmbeddingRequest, number: str) -> None:
        response = InferResponse(error=InternalError("vLLM made no embedding"))
        try:
            async for output in self._loop.engine.encode(asked.prompt, asked.params, number):
                if output.finished:
                    response = embedding_response(asked, output)
        except Exception as error:
            response = InferResponse(error=as_error(error))
        send(request, response, True)
