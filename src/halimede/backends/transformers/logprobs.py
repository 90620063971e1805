"""Log probabilities of a token that was chosen, by the logits of the model."""

from torch import Tensor

from halimede.backends.language.logprobs import TokenLogprob


def logprob_of(logits: Tensor, token: int, count: int) -> TokenLogprob:
    """How probable a token was, with so many of the most probable ones.

    Args:
        logits: as the model gives them, FP32, shape [vocabulary].
        token: the token.
        count: how many.
    """
    logprobs = logits.log_softmax(-1)
    own = logprobs[token]
    rank = int((logprobs > own).sum()) + 1
    values, tokens = logprobs.topk(min(count, len(logprobs)))
    return TokenLogprob(float(own), rank, tuple(zip(tokens.tolist(), values.tolist(), strict=True)))
