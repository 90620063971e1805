"""The examples as OpenAI's own client sees them."""

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from openai import OpenAI

from tests.support.server import ServerProcess, start_server

TOLERANCE = 1e-4


def test_the_client_prints_what_the_page_says() -> None:
    with start_server("examples/openai/models", "--allow-openai=true", "--allow-grpc=false") as server:
        command = [
            sys.executable,
            "examples/openai/client.py",
            "--http",
            server.http,
            "Good morning, parrot!",
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "Good morning, parrot!\n4 + 3 tokens\n"


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_are_those_of_pytorch(
    embeddings_server: ServerProcess, encoding: Literal["float", "base64"]
) -> None:
    stored = np.load(Path(__file__).parent / "sentence_embeddings.npz")
    sentences, expected = [str(sentence) for sentence in stored["sentences"]], stored["embeddings"]
    with OpenAI(base_url=f"http://{embeddings_server.http}/v1", api_key="none", max_retries=0) as client:
        reply = client.embeddings.create(
            model="sentence_embeddings", input=sentences, encoding_format=encoding
        )
    assert 0 < reply.usage.prompt_tokens < sum(len(sentence) + 2 for sentence in sentences)
    rows: list[Any] = [each.embedding for each in reply.data]
    got = [np.frombuffer(base64.b64decode(row), "<f4") if encoding == "base64" else row for row in rows]
    np.testing.assert_allclose(np.array(got), expected, rtol=0, atol=TOLERANCE)
