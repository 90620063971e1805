"""Ask a SageMaker container what a picture shows, with nothing but the platform's contract.

Without `--models` the picture goes to `/invocations`, as a single-model endpoint has it. With it, the container is a
multi-model one, and this does what the platform would: load what lies in that directory, invoke and unload it.
"""

import argparse
import hashlib
import http.client
import json
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as triton

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="


class Container:
    """A container, as the platform sees it."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=60)

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[bytes, str]:
        """Body and content type of the response; an error raises."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, body, named)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise SystemExit(f"{method} {path}: {response.status} {answer.decode()}")
        return answer, response.headers.get("Content-Type", "")

    def load(self, key: str, url: Path, target: str) -> None:
        """Load the model that lies below `url`; clients of the platform call it `target`."""
        body = json.dumps({"model_name": key, "url": str(url)}).encode()
        self.call("POST", "/models", body, X_Amzn_SageMaker_Target_Model=target)

    def models(self) -> list[str]:
        """The keys of the models that are loaded."""
        answer, _ = self.call("GET", "/models")
        return [model["modelName"] for model in json.loads(answer)["models"]]

    def invoke(self, inputs: list[triton.InferInput], key: str = "") -> triton.InferResult:
        """What a model answers, tensors in binary form; without a key, the endpoint's only model."""
        path = f"/models/{key}/invoke" if key else "/invocations"
        body, json_size = triton.InferenceServerClient.generate_request_body(inputs)
        answer, content_type = self.call("POST", path, body, Content_Type=f"{BINARY}{json_size}")
        header_length = int(content_type.removeprefix(BINARY))
        return triton.InferenceServerClient.parse_response_body(answer, header_length=header_length)

    def unload(self, key: str) -> None:
        """Unload a model; its memory is free when this returns."""
        self.call("DELETE", f"/models/{key}")


def tensor(name: str, datatype: str, value: np.ndarray[Any, Any]) -> triton.InferInput:
    """An input."""
    one = triton.InferInput(name, value.shape, datatype)
    one.set_data_from_numpy(value)
    return one


def read_picture(container: Container, picture: Path, key: str = "") -> str:
    """What the ensemble says of a picture, a file of 64 bytes."""
    result = container.invoke([image(picture)], key)
    return str(result.as_numpy("word")[0, 0].decode())


def image(picture: Path) -> triton.InferInput:
    """The picture as an input."""
    return tensor("image", "UINT8", np.fromfile(picture, np.uint8).reshape(1, 8, 8))


def tour(container: Container, directory: Path, picture: Path) -> None:
    """Load, list, invoke and unload the three models of the example."""
    targets = ("digits.tar.gz", "add_sub.tar.gz", "read_digit.tar.gz")
    keys = {target: hashlib.md5(target.encode()).hexdigest() for target in targets}
    for target, key in keys.items():
        container.load(key, (directory / key / "model").absolute(), target)
    print(f"{len(container.models())} models are loaded")

    result = container.invoke([image(picture)], keys["digits.tar.gz"])
    print(f"digits.tar.gz: {result.as_numpy('probabilities').argmax()}")

    first, second = np.array([0.5, 1, 2, 4], np.float32), np.array([1, 1, 2, 2], np.float32)
    inputs = [tensor("INPUT0", "FP32", first), tensor("INPUT1", "FP32", second)]
    result = container.invoke(inputs, keys["add_sub.tar.gz"])
    print(f"add_sub.tar.gz: {first} + {second} = {result.as_numpy('OUTPUT0')}")

    print(f"read_digit.tar.gz: {read_picture(container, picture, keys['read_digit.tar.gz'])}")

    for key in keys.values():
        container.unload(key)
    print(f"{len(container.models())} models are loaded")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sagemaker", default="localhost:8080", help="where the container listens")
    parser.add_argument(
        "--models", type=Path, help="directory of models, one below the other as the platform has them"
    )
    parser.add_argument("picture", type=Path, help="64 bytes, row by row: 0 for paper, 16 for ink")
    arguments = parser.parse_args()
    container = Container(arguments.sagemaker)
    if arguments.models:
        tour(container, arguments.models, arguments.picture)
    else:
        print(read_picture(container, arguments.picture))


if __name__ == "__main__":
    main()
