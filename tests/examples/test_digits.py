"""What a newcomer does first: a real picture, by curl and by Triton's client."""

import json
import urllib.request
from collections.abc import Mapping
from email.message import Message
from pathlib import Path

import numpy as np
import tritonclient.grpc
import tritonclient.http
from sklearn.datasets import load_digits

from tests.support.server import ServerProcess


def post(
    server: ServerProcess, body: bytes, headers: Mapping[str, str] | None = None
) -> tuple[bytes, Message]:
    """Body and headers of what the model `digits` answers; an error raises."""
    request = urllib.request.Request(f"http://{server.http}/v2/models/digits/infer", body, headers or {})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read(), response.headers


def test_picture_of_a_seven_is_told_with_its_label(examples: Path, server: ServerProcess) -> None:
    body, _ = post(server, (examples / "digit.json").read_bytes())

    [output] = json.loads(body)["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("probabilities", "BYTES", [1, 3])
    value, index, label = output["data"][0].split(":")
    assert (index, label) == ("7", "seven")
    assert float(value) > 0.9


def test_bare_bytes_of_the_picture_are_a_request(examples: Path, server: ServerProcess) -> None:
    picture = (examples / "digit.bin").read_bytes()

    body, headers = post(server, picture, {"Inference-Header-Content-Length": "0"})

    head = int(headers["Inference-Header-Content-Length"])
    assert np.frombuffer(body[head:], np.float32).argmax() == 7


def test_all_digits_are_told_well_over_http_and_grpc(server: ServerProcess) -> None:
    digits = load_digits()
    images = digits.images[:64].astype(np.uint8)
    answers = []
    for module, url in ((tritonclient.http, server.http), (tritonclient.grpc, server.grpc)):
        with module.InferenceServerClient(url) as client:
            tensor = module.InferInput("image", images.shape, "UINT8")
            tensor.set_data_from_numpy(images)
            answers.append(client.infer("digits", [tensor]).as_numpy("probabilities"))

    over_http, over_grpc = answers
    np.testing.assert_array_equal(over_http, over_grpc)
    assert (over_http.argmax(axis=1) == digits.target[:64]).mean() > 0.95


def test_labels_come_over_grpc_too(examples: Path, server: ServerProcess) -> None:
    image = np.fromfile(examples / "digit.bin", np.uint8).reshape(1, 8, 8)
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        tensor = tritonclient.grpc.InferInput("image", image.shape, "UINT8")
        tensor.set_data_from_numpy(image)
        output = tritonclient.grpc.InferRequestedOutput("probabilities", class_count=1)
        [[best]] = client.infer("digits", [tensor], outputs=[output]).as_numpy("probabilities")

    assert best.decode().endswith(":7:seven")
