"""What `/openapi.json` says of the calls of OpenAI's API."""

from typing import Any, Final

from halimede.frontends.http.openapi import Described, paths_of
from halimede.frontends.openai.routes import Call

DESCRIBED: Final = {
    Call.MODELS: Described(("/v1/models",), "The models that serve calls of OpenAI's API"),
    Call.MODEL: Described(("/v1/models/{model}",), "One of these models"),
    Call.CHAT_COMPLETIONS: Described(
        ("/v1/chat/completions",), "Answer a chat; as events with `stream`", "Object"
    ),
    Call.COMPLETIONS: Described(("/v1/completions",), "Complete a text; as events with `stream`", "Object"),
    Call.RESPONSES: Described(
        ("/v1/responses",), "Answer a conversation or continue one; as events with `stream`", "Object"
    ),
    Call.EMBEDDINGS: Described(("/v1/embeddings",), "The embeddings of texts", "Object"),
    Call.TOKENIZE: Described(
        ("/tokenize",), "The tokens of a prompt or a chat, as vLLM has the call", "Object"
    ),
    Call.DETOKENIZE: Described(("/detokenize",), "The text of tokens, as vLLM has the call", "Object"),
    Call.HEALTH: Described(
        ("/health",), "Whether the server is ready, as vLLM tells it: 200 if so", answer=""
    ),
    Call.VERSION: Described(("/version",), "The version of the server, as vLLM tells it"),
}
"""What is said of each call."""


def paths() -> dict[str, Any]:
    """The paths of all calls."""
    found: dict[str, Any] = {}
    for call, described in DESCRIBED.items():
        found |= paths_of(call.label, call.category, (call.method,), described)
    return found
