"""Requests for embeddings, as Triton's vLLM backend has them: one input with JSON, and the embedding as JSON."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from vllm import PoolingParams

from halimede.backends.language import tensors
from halimede.backends.language.text_request import read_flag, read_text
from halimede.core.datatypes import BYTES, UINT32, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor, encode_bytes

EMBEDDING_REQUEST: Final = "embedding_request"

INPUTS: Final[dict[str, Datatype]] = {**tensors.INPUTS, EMBEDDING_REQUEST: BYTES}
"""Of all models of this backend: what a model can do is known only once it is loaded."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """What is asked for.

    Attributes:
        prompt: as vLLM takes it.
        params: how the embedding is made.
        counts: outputs with the numbers of tokens that are wanted.
    """

    prompt: Any
    params: Any
    counts: tuple[str, ...]


def read_embedding_request(request: InferRequest) -> EmbeddingRequest:
    """What a request with the input `embedding_request` asks for.

    Raises:
        InvalidArgumentError: it has something else.
    """
    try:
        given = orjson.loads(read_text(request, EMBEDDING_REQUEST))
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"{EMBEDDING_REQUEST} is not JSON: {error}") from None
    text = given.get("input") if isinstance(given, dict) else None
    if isinstance(text, str):
        prompt: Any = {"prompt": text}
    elif isinstance(text, list) and text and all(type(token) is int for token in text):
        prompt = {"prompt_token_ids": text}
    else:
        msg = f"{EMBEDDING_REQUEST} must be a JSON object whose 'input' is a text or a list of token ids"
        raise InvalidArgumentError(msg)
    size = (given.get("pooling_params") or {}).get("dimensions")
    size = size[0] if isinstance(size, list) and len(size) == 1 else size
    if size is not None and type(size) is not int:
        raise InvalidArgumentError(f"{EMBEDDING_REQUEST}: 'dimensions' must be a whole number")
    switches = {
        tensors.RETURN_INPUT_TOKENS: tensors.INPUT_TOKENS,
        tensors.RETURN_OUTPUT_TOKENS: tensors.OUTPUT_TOKENS,
    }
    counts = tuple(name for switch, name in switches.items() if read_flag(request, switch, default=False))
    return EmbeddingRequest(prompt, PoolingParams(task="embed", dimensions=size), counts)


def embedding_response(asked: EmbeddingRequest, output: Any) -> InferResponse:
    """The response with what vLLM has made."""
    embedding = output.outputs.data
    numbers = embedding.tolist() if hasattr(embedding, "tolist") else embedding
    outputs = {tensors.TEXT_OUTPUT: Tensor(BYTES, (1,), encode_bytes([orjson.dumps(numbers)]))}
    found = {tensors.INPUT_TOKENS: len(output.prompt_token_ids), tensors.OUTPUT_TOKENS: 0}
    for name in asked.counts:
        outputs[name] = Tensor.from_array(UINT32, np.array([found[name]], UINT32.numpy))
    return InferResponse(outputs)
