"""A client of either protocol, with what differs between the two evened out."""

import queue
from types import ModuleType, TracebackType
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http

from tests.support.server import ServerProcess

HTTP, GRPC = tritonclient.http, tritonclient.grpc


class Client:
    """A client of either protocol.

    Attributes:
        module: `HTTP` or `GRPC`.
        client: the module's client.
    """

    def __init__(self, module: ModuleType, server: ServerProcess) -> None:
        self.module = module
        self.url = server.http if module is HTTP else server.grpc
        self.client = module.InferenceServerClient(self.url)

    def tensors(self, datatype: str, values: dict[str, np.ndarray[Any, Any]]) -> list[Any]:
        """Input tensors."""
        tensors = []
        for name, value in values.items():
            tensors.append(self.module.InferInput(name, value.shape, datatype))
            tensors[-1].set_data_from_numpy(value)
        return tensors


class Stream:
    """A gRPC stream; what arrives on it is taken one by one."""

    def __init__(self, server: ServerProcess) -> None:
        self.grpc = Client(GRPC, server)
        self._arrived: queue.Queue[Any] = queue.Queue()

    def __enter__(self) -> "Stream":
        self.grpc.client.start_stream(lambda result, error: self._arrived.put(error or result))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.grpc.client.stop_stream(cancel_requests=error is not None)
        self.grpc.client.close()

    def send(self, model: str, inputs: list[Any], **options: Any) -> None:
        """Send a request."""
        self.grpc.client.async_stream_infer(model, inputs, **options)

    def receive(self) -> Any:
        """The next result; an error raises."""
        arrived = self._arrived.get(timeout=30)
        if isinstance(arrived, Exception):
            raise arrived
        return arrived
