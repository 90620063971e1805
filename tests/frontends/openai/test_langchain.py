"""LangChain's chat model, unmodified."""

from typing import Any

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from tests.support.server import ServerProcess


class Given(BaseModel):
    """A part of what the model `tools` answers."""

    response_format: dict[str, Any]


def look(place: str) -> str:
    """Look somewhere."""
    return place


def chat(server: ServerProcess, model: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=model, base_url=f"http://{server.http}/v1", api_key=SecretStr("none"), max_retries=0, **options
    )


def test_langchain_chats_streams_and_calls_tools(server: ServerProcess) -> None:
    writer = chat(server, "writer")
    reply = writer.invoke([("system", "be brief"), ("user", "good day")])
    assert reply.text == "system: be brief user: good day assistant: "
    assert reply.usage_metadata is not None
    assert reply.usage_metadata["total_tokens"] == 14
    assert "".join(chunk.text for chunk in writer.stream("one two")) == "user: one two assistant: "
    (call,) = chat(server, "tools").bind_tools([look]).invoke("where?").tool_calls
    assert (call["name"], call["args"]) == ("look", {})


def test_langchain_uses_responses(server: ServerProcess) -> None:
    writer = chat(server, "writer", use_responses_api=True)
    assert writer.invoke("good day").text == "user: good day assistant: "
    assert "".join(chunk.text for chunk in writer.stream("one two")) == "user: one two assistant: "
    parsed: Any = chat(server, "tools", use_responses_api=True).with_structured_output(Given).invoke("x")
    assert parsed.response_format["type"] == "json_schema"
