"""How vLLM is to choose tokens."""

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from halimede.backends.language.sampling import Sampling
from halimede.backends.language.structure import Structure, StructureKind
from halimede.backends.vllm.errors import CLIENT_ERRORS, client_message
from halimede.core.errors import InvalidArgumentError


def sampling_params(sampling: Sampling, room: int) -> SamplingParams:
    """The same for vLLM. It gives tokens, only new ones each time; texts are made of them here, and stop words found.

    Args:
        sampling: what a request asks for.
        room: the most tokens of the text.

    Raises:
        InvalidArgumentError: vLLM cannot choose them so.
    """
    try:
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or -1,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            frequency_penalty=sampling.frequency_penalty,
            presence_penalty=sampling.presence_penalty,
            logit_bias=dict(sampling.logit_bias) or None,
            seed=sampling.seed,
            max_tokens=max(1, room),  # vLLM always writes a token, which is not shown if none is wanted
            min_tokens=min(sampling.min_tokens, room),
            allowed_token_ids=list(sampling.allowed_token_ids) or None,
            bad_words=list(sampling.bad_words) or None,
            stop_token_ids=list(sampling.stop_token_ids),
            ignore_eos=sampling.ignore_eos and sampling.structure is None,
            logprobs=sampling.logprobs,
            prompt_logprobs=sampling.prompt_logprobs,
            structured_outputs=None if sampling.structure is None else _structured(sampling.structure),
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
    except CLIENT_ERRORS as error:
        raise InvalidArgumentError(f"sampling_parameters: {client_message(error)}") from error


def _structured(structure: Structure) -> StructuredOutputsParams:
    described = structure.choices if structure.kind is StructureKind.CHOICE else structure.text
    try:
        return StructuredOutputsParams(**{structure.kind.value: described})
    except CLIENT_ERRORS as error:
        raise structure.refused(client_message(error)) from error
