"""Embeddings: texts run on the model in as few requests as it takes, and told as numbers or as base64."""

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import orjson

from halimede.core.datatypes import BYTES
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Array, Buffer, Tensor, encode_texts
from halimede.engine.engine import Engine
from halimede.frontends.http.answers import AnswerInSteps, answer_later
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.openai import fields
from halimede.frontends.openai.errors import FieldError, respond_error
from halimede.frontends.openai.fields import IgnoredFields
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.long_json import Steps
from halimede.frontends.openai.model_errors import client_error
from halimede.frontends.openai.profile import EMBEDDING_REQUEST
from halimede.frontends.openai.published_fields import check_fields
from halimede.frontends.openai.requests import Requests
from halimede.frontends.openai.routes import Call
from halimede.frontends.openai.tensors import count_of, embeddings_of, json_of, json_tensor, value_tensor
from halimede.frontends.openai.text_tokenizer import LONG
from halimede.frontends.restrictions import HeaderPattern
from halimede.frontends.steps_of_work import whole

_STEP_NUMBERS: Final = 4096
"""Numbers of embeddings that are written in less than a millisecond."""


class Embeddings:
    """The answer to one request. Lives on the event loop.

    Args:
        engine: what runs requests.
        exchange: what is answered.
        known: the model.
        document: the request.
        ignored: hears of fields without effect.
        received_ns: when, on the engine's clock.

    Raises:
        HalimedeError: what is wrong with the request.
    """

    def __init__(
        self,
        engine: Engine,
        exchange: Exchange,
        known: KnownModel,
        document: dict[str, Any],
        ignored: IgnoredFields,
        received_ns: int,
    ) -> None:
        self._exchange = exchange
        self._known = known
        self._texts = fields.prompts(document, "input")
        if not isinstance(self._texts[0], str) and EMBEDDING_REQUEST not in known.profile.inputs:
            msg = f"model '{known.model.name}' takes no token ids in 'input'; send text"
            raise FieldError("input", msg)
        form = document.get("encoding_format", "float")
        if form not in ("float", "base64", None):
            raise FieldError("encoding_format", "'encoding_format' must be 'float' or 'base64'")
        self._base64 = form == "base64"
        self._dimensions = document.get("dimensions")
        if self._dimensions is not None and (
            type(self._dimensions) is not int or not 0 < self._dimensions < 1 << 31
        ):
            raise FieldError("dimensions", "'dimensions' must be an integer above 0")
        check_fields(document, Call.EMBEDDINGS, (), ignored)
        self._sizes, self._inputs = self._requests_of(self._texts)
        self._rows: list[Array | None] = [None] * len(self._sizes)
        self._tokens: list[int | None] = [None] * len(self._sizes)
        self._over = False
        self._requests = Requests(engine, exchange, known.model, received_ns, self._take)

    def start(self, pattern: HeaderPattern | None) -> None:
        """Have the model run it; `pattern` finds the headers that become parameters.

        Raises:
            HalimedeError: the request is answered with this.
        """
        try:
            self._requests.run("", self._inputs, pattern)
        except HalimedeError:
            self._over = True
            raise

    def _requests_of(self, given: list[str] | list[list[int]]) -> tuple[list[int], list[dict[str, Tensor]]]:
        """How many texts each request has, and its inputs."""
        profile, signature = self._known.profile, self._known.model.signature
        request = profile.inputs.get(EMBEDDING_REQUEST)
        if request is not None:
            return [1] * len(given), [self._embedding_request(each) for each in given]
        texts = [each for each in given if isinstance(each, str)]
        spec = profile.prompt
        assert spec is not None
        batch = signature.max_batch_size
        if batch > 0 and spec.dims in ((1,), (-1,)):
            shape: tuple[int, ...] = (1,)
            size = batch
        elif batch == 0 and spec.dims in ((-1,), (-1, 1)):
            shape = spec.dims[1:]
            size = len(texts)
        else:
            return [1] * len(texts), [
                {spec.name: value_tensor(signature, spec, "input", text)} for text in texts
            ]
        parts = [texts[first : first + size] for first in range(0, len(texts), size)]
        inputs = [{spec.name: Tensor(BYTES, (len(part), *shape), encode_texts(part))} for part in parts]
        return [len(part) for part in parts], inputs

    def _embedding_request(self, text: str | list[int]) -> dict[str, Tensor]:
        """The inputs of a model of Triton's vLLM backend, which takes one text as JSON."""
        profile, signature = self._known.profile, self._known.model.signature
        asked: dict[str, Any] = {"input": text}
        if self._dimensions is not None:
            asked["pooling_params"] = {"dimensions": [self._dimensions]}
        spec = profile.inputs[EMBEDDING_REQUEST]
        tensors = {spec.name: json_tensor(signature, spec, "input", asked)}
        if profile.prompt is not None and not profile.prompt.optional:
            plain = text if isinstance(text, str) else ""
            tensors[profile.prompt.name] = value_tensor(signature, profile.prompt, "input", plain)
        if "return_num_input_tokens" in profile.inputs:
            spec = profile.inputs["return_num_input_tokens"]
            tensors[spec.name] = value_tensor(signature, spec, "input", True)
        return tensors

    def _take(self, number: int, response: InferResponse | None, final: bool) -> None:
        if self._over or self._exchange.closed:
            return
        try:
            if response is not None:
                self._keep(number, response)
            if final and self._rows[number] is None:
                name = self._known.model.name
                raise InternalError(f"model '{name}' ended the request without a response")
            if all(rows is not None for rows in self._rows) and not self._over:
                self._over = True
                self._complete()
        except HalimedeError as error:
            self._over = True
            self._requests.cancel()
            respond_error(self._exchange, error)
        except Exception as error:  # whoever responds has other requests to answer
            self._over = True
            self._exchange.fail(error)

    def _keep(self, number: int, response: InferResponse) -> None:
        if response.error is not None:
            raise client_error(response.error, "input", {"dimensions": "dimensions", "input": "input"})
        profile = self._known.profile
        name = profile.output.name
        tensor = response.outputs.get(name)
        if tensor is None:
            raise InternalError(f"the model's response lacks the output '{name}'")
        if tensor.datatype is BYTES:
            try:
                rows = np.array([json_of(name, tensor)], "<f4")
            except (TypeError, ValueError):
                raise InternalError(f"the model's output '{name}' is not a JSON list of numbers") from None
            if rows.ndim != 2:
                raise InternalError(f"the model's output '{name}' is not a JSON list of numbers")
        else:
            rows = embeddings_of(name, tensor, self._sizes[number])
        if self._dimensions is not None and rows.shape[1] != self._dimensions:
            msg = f"model '{self._known.model.name}' gives embeddings of {rows.shape[1]} dimensions only"
            raise FieldError("dimensions", msg, "unsupported_parameter")
        self._rows[number] = rows
        told = profile.outputs.get("num_input_tokens")
        if told is not None and told.name in response.outputs:
            self._tokens[number] = count_of(response.outputs[told.name])

    def _complete(self) -> None:
        """Answer, now or once the tokens are counted."""
        counts, tokenizer = self._tokens, self._known.files.tokenizer
        if None not in counts or tokenizer is None:
            self._respond(counts)
            return
        texts = self._texts

        def count() -> list[int | None]:
            return [tokenizer.count(each, True) if isinstance(each, str) else len(each) for each in texts]

        if sum(map(len, texts)) <= LONG:
            self._respond(count())
            return
        counting = asyncio.get_running_loop().run_in_executor(None, count)
        answer_later(self._exchange, counting, self._respond, respond_error)

    def _respond(self, counts: list[int | None]) -> None:
        rows = [row for part in self._rows if part is not None for row in part]
        rest: dict[str, Any] = {"model": self._known.model.name}
        tokens = [each for each in counts if each is not None]
        if len(tokens) == len(counts):
            rest["usage"] = {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)}
        if sum(map(len, rows)) <= _STEP_NUMBERS:
            self._exchange.respond(200, whole(self._parts(rows, rest)))
        else:
            respond = partial(self._exchange.respond, 200)
            AnswerInSteps(self._exchange, self._parts(rows, rest), respond, respond_error).take()

    def _parts(self, rows: Sequence[Array], rest: dict[str, Any]) -> Steps:
        """Makes the reply."""
        parts: list[Buffer] = [b'{"object":"list","data":[']
        step = max(1, _STEP_NUMBERS // max(1, len(rows[0])))
        for start in range(0, len(rows), step):
            if start:
                parts.append(b",")
                yield
            items = [
                {
                    "object": "embedding",
                    "index": index,
                    "embedding": b64encode(row.tobytes()).decode() if self._base64 else row,
                }
                for index, row in enumerate(rows[start : start + step], start)
            ]
            parts.append(orjson.dumps(items, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1])
        return [*parts, b"],", orjson.dumps(rest)[1:]]
