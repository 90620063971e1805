"""What the SageMaker platform does with a container: start `halimede sagemaker-serve`, and speak the contract."""

import http.client
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.server import ServerProcess, running

JSON = "application/json"
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
ARGUMENTS = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"


def environment(base: Path, **variables: str) -> dict[str, str]:
    """The environment of a container with that base directory, on a free port of 127.0.0.1."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SAGEMAKER_")}
    local = " ".join(f"--{name}-address=127.0.0.1" for name in ("sagemaker", "grpc", "metrics"))
    variables[ARGUMENTS] = f"{local} {variables.get(ARGUMENTS, '')}"
    return {**others, "SAGEMAKER_BASE_DIR": str(base), "SAGEMAKER_BIND_TO_PORT": "0", **variables}


@contextmanager
def start_serve(base: Path, **variables: str) -> Iterator[ServerProcess]:
    """The server as the platform runs it, healthy by then, and ended at the end of the block.

    Args:
        base: what stands for `/opt/ml`.
        variables: further variables.
    """
    opened = 1 + sum(
        variables.get(f"SAGEMAKER_TRITON_ALLOW_{name}") == "true" for name in ("GRPC", "METRICS")
    )
    command = [sys.executable, "-m", "halimede", "sagemaker-serve"]
    with running(command, opened, environment=environment(base, **variables)) as server:
        yield server


class Answer(NamedTuple):
    """A response."""

    status: int
    content_type: str
    body: bytes

    @property
    def bare(self) -> tuple[int, bytes]:
        """Status and body."""
        return self.status, self.body

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Platform:
    """The platform's side of a container's contract."""

    def __init__(self, server: ServerProcess) -> None:
        self._address = server.sagemaker

    def call(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The response to one request, on a connection of its own."""
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, response.headers.get("Content-Type", ""), response.read())
        finally:
            connection.close()

    def load(self, key: str, url: Path, target: str = "") -> Answer:
        """Load what lies there."""
        headers = {"X-Amzn-SageMaker-Target-Model": target} if target else {}
        return self.call("POST", "/models", json.dumps({"model_name": key, "url": str(url)}), headers)

    def keys(self) -> set[str]:
        """The keys of the models that are loaded."""
        return {each["modelName"] for each in self.call("GET", "/models").document["models"]}

    def invoke(self, body: bytes | str, key: str = "", content_type: str = JSON) -> Answer:
        """What the model under a key answers; without one, the endpoint's only model."""
        path = f"/models/{key}/invoke" if key else "/invocations"
        return self.call("POST", path, body, {"Content-Type": content_type})

    def unload(self, key: str) -> Answer:
        """Unload what is under a key."""
        return self.call("DELETE", f"/models/{key}")
