"""Chat with a model in the terminal; an empty line, or the end of the input, ends the chat."""

import argparse
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

Message = dict[str, str]


def answer(url: str, model: str, messages: list[Message], **options: Any) -> Iterator[str]:
    """The pieces of the model's answer, as they come.

    Raises:
        RuntimeError: the server refuses the request, or the model fails.
    """
    body = {"model": model, "messages": messages, "stream": True, **options}
    try:
        with urllib.request.urlopen(f"{url}/chat/completions", json.dumps(body).encode()) as reply:
            for line in reply:
                data = line.decode().strip().removeprefix("data: ")
                if not data or data == "[DONE]":
                    continue
                event = json.loads(data)
                if "error" in event:
                    raise RuntimeError(event["error"]["message"])
                yield event["choices"][0]["delta"].get("content") or ""
    except urllib.error.HTTPError as error:
        raise RuntimeError(json.loads(error.read())["error"]["message"]) from None


def chat(url: str, model: str, **options: Any) -> None:
    """Read what the user says, line by line, and print the answers."""
    while True:
        try:
            said = input("> ")
        except EOFError:
            said = ""
        if not said:
            return
        # each line begins a new conversation: the model has learned nothing longer
        for piece in answer(url, model, [{"role": "user", "content": said}], **options):
            print(piece, end="", flush=True)
        print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
    parser.add_argument("--model", default="scribe", help="the model")
    parser.add_argument("--temperature", type=float, default=0.3, help="0: always the most probable token")
    parser.add_argument("--max-tokens", type=int, default=120, help="the most tokens of an answer")
    arguments = parser.parse_args()
    chat(
        f"http://{arguments.http}/v1",
        arguments.model,
        temperature=arguments.temperature,
        max_tokens=arguments.max_tokens,
    )
