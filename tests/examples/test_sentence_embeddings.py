"""The flagship example: text in, embeddings out, the same as PyTorch computes.

`sentence_embeddings.npz` has sentences and what sentence-transformers 6.2.0 on PyTorch 2.13.0 makes of them with
the same checkpoint; `examples/sentence-embeddings/compare.py --write` wrote it.
"""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from tests.examples.clients import GRPC, HTTP, Client
from tests.support.server import ServerProcess

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def reference() -> tuple[list[str], NDArray[np.float32]]:
    """Sentences, and their embeddings [sentences, 384]."""
    stored = np.load(Path(__file__).parent / "sentence_embeddings.npz")
    return [str(sentence) for sentence in stored["sentences"]], stored["embeddings"]


@pytest.fixture(params=[HTTP, GRPC], ids=["http", "grpc"])
def client(request: pytest.FixtureRequest, embeddings_server: ServerProcess) -> Iterator[Client]:
    one = Client(request.param, embeddings_server)
    yield one
    one.client.close()


def texts(client: Client, sentences: list[str] | list[bytes]) -> list[Any]:
    encoded = [one.encode() if isinstance(one, str) else one for one in sentences]
    return client.tensors("BYTES", {"TEXT": np.array([[one] for one in encoded], np.object_)})


def test_embeddings_are_those_of_pytorch(
    client: Client, reference: tuple[list[str], NDArray[np.float32]]
) -> None:
    sentences, expected = reference

    embeddings = client.client.infer("sentence_embeddings", texts(client, sentences)).as_numpy("EMBEDDING")

    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)


def test_requests_that_share_batches_get_their_own_embeddings(
    embeddings_server: ServerProcess, reference: tuple[list[str], NDArray[np.float32]]
) -> None:
    sentences, expected = reference
    http = HTTP.InferenceServerClient(embeddings_server.http, concurrency=16)
    client = Client(HTTP, embeddings_server)
    rows = [index % len(sentences) for index in range(32)]

    sent = [http.async_infer("sentence_embeddings", texts(client, [sentences[row]])) for row in rows]
    embeddings = [one.get_result().as_numpy("EMBEDDING")[0] for one in sent]
    http.close()
    client.client.close()

    np.testing.assert_allclose(embeddings, expected[rows], rtol=0, atol=TOLERANCE)


def test_texts_of_one_batch_are_padded_to_one_length(client: Client) -> None:
    result = client.client.infer(
        "tokenizer", texts(client, ["short", "a sentence that is somewhat longer " * 3])
    )

    ids, mask = result.as_numpy("input_ids"), result.as_numpy("attention_mask")
    assert ids.shape == mask.shape
    assert ids.shape[1] % 8 == 0
    assert mask.sum(axis=1).tolist() == [3, 20]  # with the marks of beginning and end
    assert ids[0, :4].tolist() == [101, 2460, 102, 0]


def test_generate_takes_text_as_plain_json(
    embeddings_server: ServerProcess, reference: tuple[list[str], NDArray[np.float32]]
) -> None:
    sentences, expected = reference
    url = f"http://{embeddings_server.http}/v2/models/sentence_embeddings/generate"
    with urllib.request.urlopen(url, json.dumps({"TEXT": sentences[0]}).encode(), timeout=30) as response:
        answer = json.loads(response.read())

    np.testing.assert_allclose(answer["EMBEDDING"], expected[0], rtol=0, atol=TOLERANCE)


def test_text_that_is_not_utf8_is_refused_alone(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="TEXT must be UTF-8") as failure:
        client.client.infer("sentence_embeddings", texts(client, [b"\xff\xfe"]))
    assert "(in step 0, model 'tokenizer')" in failure.value.message()

    assert client.client.infer("sentence_embeddings", texts(client, ["fine"])).as_numpy("EMBEDDING").any()
