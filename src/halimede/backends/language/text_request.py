"""What a request asks of a model that generates text."""

from dataclasses import dataclass, replace
from typing import Any

import orjson

from halimede.backends.language import tensors
from halimede.backends.language.logprobs import LogprobForm, read_count, read_openai_logprobs
from halimede.backends.language.sampling import Sampling, choose_known, read_sampling
from halimede.backends.language.structure import Structure, read_response_format
from halimede.backends.language.tools.formats import ToolFormat
from halimede.backends.language.tools.tool_use import ToolUse, read_tool_use
from halimede.backends.language.truncation import Truncation, read_truncation
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest
from halimede.core.tensors import decode_bytes


@dataclass(frozen=True, slots=True)
class TextRequest:
    """What is asked for.

    Attributes:
        prompt: the text that the model is to go on with.
        stream: the text comes piece by piece, in many responses.
        echo: the prompt comes before the text.
        sampling: how tokens are chosen.
        wanted: the outputs besides the text.
        logprob_form: how log probabilities are told, if they are wanted.
        tools: how the text may call tools, None if there are none.
        special: the prompt gets the tokens that the model wants at its beginning.
        token_ids: log probabilities name tokens by their ids.
        truncation: what is done with a prompt that is too long; None to refuse it.
        with_prompt: the first response has the prompt, and its log probabilities if those of the text are wanted.
        prompt_tokens: the tokens of the prompt, which take the place of its text; None to make them of the text.
    """

    prompt: str
    stream: bool
    echo: bool
    sampling: Sampling
    wanted: frozenset[str]
    logprob_form: LogprobForm = LogprobForm.VLLM
    tools: ToolUse | None = None
    special: bool = True
    token_ids: bool = False
    truncation: Truncation | None = None
    prompt_tokens: list[int] | None = None
    with_prompt: bool = False


def read_text_request(
    request: InferRequest, defaults: Sampling, tool_format: ToolFormat | None = None
) -> TextRequest:
    """What the request asks for; what it leaves out of the sampling is as in `defaults`.

    Args:
        request: the request.
        defaults: see above.
        tool_format: how the model writes calls of tools, None if that is not known.

    Raises:
        InvalidArgumentError: an input has another shape, or says what cannot be.
    """
    stream = read_flag(request, tensors.STREAM, default=False)
    exclude = read_flag(request, tensors.EXCLUDE_INPUT, default=stream)
    if stream and not exclude:
        msg = f"{tensors.EXCLUDE_INPUT} cannot be false for a request with {tensors.STREAM}"
        raise InvalidArgumentError(msg)
    if tensors.SAMPLING_PARAMETERS in request.inputs:
        sampling = read_sampling(read_text(request, tensors.SAMPLING_PARAMETERS), defaults)
    else:
        sampling = choose_known(request.parameters or {}, defaults)
    switches = {
        tensors.RETURN_FINISH_REASON: tensors.FINISH_REASON,
        tensors.RETURN_INPUT_TOKENS: tensors.INPUT_TOKENS,
        tensors.RETURN_OUTPUT_TOKENS: tensors.OUTPUT_TOKENS,
        tensors.RETURN_LOGPROBS: tensors.LOGPROBS,
        tensors.RETURN_CUMULATIVE_LOGPROB: tensors.CUMULATIVE_LOGPROB,
    }
    wanted = {output for switch, output in switches.items() if read_flag(request, switch, default=False)}
    form = LogprobForm.VLLM
    asked = read_openai_logprobs(_json(request, tensors.LOGPROBS), _json(request, tensors.TOP_LOGPROBS))
    if asked is not None:
        wanted.add(tensors.LOGPROBS)
        form = asked[0]
        sampling = replace(sampling, logprobs=asked[1])
    elif tensors.CUMULATIVE_LOGPROB in wanted and sampling.logprobs is None:
        sampling = replace(sampling, logprobs=0)
    with_prompt = read_flag(request, tensors.RETURN_PROMPT, default=False)
    sampling = _with_prompt_logprobs(request, sampling, wanted, with_prompt=with_prompt)
    sampling = _with_structure(
        sampling, tensors.RESPONSE_FORMAT, read_response_format(_json(request, tensors.RESPONSE_FORMAT))
    )
    tools = read_tool_use(
        _json(request, tensors.TOOLS),
        _json(request, tensors.TOOL_CHOICE),
        _json(request, tensors.PARALLEL_TOOL_CALLS),
        tool_format,
    )
    if tools is not None:
        sampling = _with_structure(sampling, tensors.TOOL_CHOICE, tools[1])
    return TextRequest(
        read_text(request, tensors.TEXT_INPUT),
        stream,
        not exclude,
        sampling,
        frozenset(wanted),
        form,
        tools and tools[0],
        read_flag(request, tensors.ADD_SPECIAL_TOKENS, default=True),
        read_flag(request, tensors.TOKENS_AS_IDS, default=False),
        read_truncation(_json(request, tensors.TRUNCATE_PROMPT), _json(request, tensors.TRUNCATION_SIDE)),
        _prompt_tokens(_json(request, tensors.PROMPT_TOKENS)),
        with_prompt,
    )


def _with_prompt_logprobs(
    request: InferRequest, sampling: Sampling, wanted: set[str], *, with_prompt: bool
) -> Sampling:
    """The sampling with as many log probabilities of the prompt as are asked for, by whichever field."""
    asked = _json(request, tensors.PROMPT_LOGPROBS)
    if asked is not None:
        sampling = replace(sampling, prompt_logprobs=read_count(tensors.PROMPT_LOGPROBS, asked))
    if sampling.prompt_logprobs is not None:
        wanted.add(tensors.PROMPT_LOGPROBS)
    if sampling.max_tokens == 0 and not with_prompt and sampling.prompt_logprobs is None:
        msg = "'max_tokens' must be a whole number from 1, but for requests that ask for the prompt"
        raise InvalidArgumentError(msg)
    if with_prompt and sampling.logprobs is not None:
        most = max(sampling.logprobs, sampling.prompt_logprobs or 0)
        sampling = replace(sampling, prompt_logprobs=most)
    return sampling


def _prompt_tokens(value: Any) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(token) is int and token >= 0 for token in value):
        msg = f"'{tensors.PROMPT_TOKENS}' must be a list of token ids, got {value!r:.64}"
        raise InvalidArgumentError(msg)
    return value


def _with_structure(sampling: Sampling, field: str, structure: Structure | None) -> Sampling:
    """The sampling with the form that a field asks for."""
    if structure is None:
        return sampling
    if sampling.structure is not None:
        msg = f"'{field}' and '{sampling.structure.field}' cannot both say what form the text has"
        raise InvalidArgumentError(msg)
    return replace(sampling, structure=structure)


def _json(request: InferRequest, name: str) -> Any:
    """What an optional input of JSON says, None without it."""
    if name not in request.inputs:
        return None
    try:
        return orjson.loads(read_text(request, name))
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"{name} is not JSON: {error}") from None


def read_text(request: InferRequest, name: str) -> str:
    """The text of an input.

    Raises:
        InvalidArgumentError: it has more than one element, or is no UTF-8.
    """
    tensor = request.inputs[name]
    elements = decode_bytes(tensor.data)
    _check_one(name, len(elements))
    try:
        return elements[0].decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{name} is not UTF-8: {error}") from None


def read_flag(request: InferRequest, name: str, *, default: bool) -> bool:
    """The truth value of an input, `default` without it.

    Raises:
        InvalidArgumentError: it has more than one element.
    """
    tensor = request.inputs.get(name)
    if tensor is None:
        return default
    array: Any = tensor.array
    _check_one(name, array.size)
    return bool(array.item())


def _check_one(name: str, count: int) -> None:
    if count != 1:
        raise InvalidArgumentError(f"{name} must have one element, got {count}")
