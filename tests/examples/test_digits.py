"""What a newcomer does first: a real picture, by curl and by Triton's client."""

import json
from pathlib import Path

import numpy as np
import tritonclient.grpc
import tritonclient.http
from sklearn.datasets import load_digits

from tests.support.server import RunningServer

DIGITS = "/v2/models/digits/infer"


def test_picture_of_a_seven_is_told_with_its_label(examples: Path, server: RunningServer) -> None:
    status, body, _ = server.post(DIGITS, (examples / "digit.json").read_bytes())

    assert status == 200
    [output] = json.loads(body)["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("probabilities", "BYTES", [1, 3])
    value, index, label = output["data"][0].split(":")
    assert (index, label) == ("7", "seven")
    assert float(value) > 0.9


def test_bare_bytes_of_the_picture_are_a_request(examples: Path, server: RunningServer) -> None:
    picture = (examples / "digit.bin").read_bytes()

    status, body, headers = server.post(DIGITS, picture, {"Inference-Header-Content-Length": "0"})

    assert status == 200
    head = int(headers["Inference-Header-Content-Length"])
    assert np.frombuffer(body[head:], np.float32).argmax() == 7


def test_all_digits_are_told_well_over_http_and_grpc(server: RunningServer) -> None:
    digits = load_digits()
    images = digits.images[:64].astype(np.uint8)
    answers = []
    for module, url in ((tritonclient.http, server.http_url), (tritonclient.grpc, server.grpc_url)):
        with module.InferenceServerClient(url) as client:
            tensor = module.InferInput("image", images.shape, "UINT8")
            tensor.set_data_from_numpy(images)
            answers.append(client.infer("digits", [tensor]).as_numpy("probabilities"))

    over_http, over_grpc = answers
    np.testing.assert_array_equal(over_http, over_grpc)
    assert (over_http.argmax(axis=1) == digits.target[:64]).mean() > 0.95


def test_labels_come_over_grpc_too(examples: Path, server: RunningServer) -> None:
    image = np.fromfile(examples / "digit.bin", np.uint8).reshape(1, 8, 8)
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        tensor = tritonclient.grpc.InferInput("image", image.shape, "UINT8")
        tensor.set_data_from_numpy(image)
        output = tritonclient.grpc.InferRequestedOutput("probabilities", class_count=1)
        [[best]] = client.infer("digits", [tensor], outputs=[output]).as_numpy("probabilities")

    assert best.decode().endswith(":7:seven")
