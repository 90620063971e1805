"""A server beside a program, such as a notebook."""

from collections.abc import Sequence
from types import TracebackType

from halimede.api.embedded import EmbeddedServer, Given
from halimede.api.models import Model
from halimede.cli.options import ServeOptions


class BackgroundServer:
    """A server on a thread of this process, with sockets.

    Attributes:
        http: where it serves HTTP, as `host:port`; "" if it does not.
        grpc: where it serves gRPC, likewise.
        metrics: where it serves metrics, likewise.
    """

    def __init__(self, models: Sequence[Given], options: ServeOptions) -> None:
        """Start it, and wait until its models are ready: see `serve_in_background`."""
        self._server = server = EmbeddedServer(models, options)
        server.wait_until_loaded()
        self.http = _address(options.http_address, server.ports.get("HTTPService"))
        self.grpc = _address(options.grpc_address, server.ports.get("GRPCInferenceService"))
        self.metrics = _address(options.metrics_address, server.ports.get("Metrics Service"))

    @property
    def url(self) -> str:
        """Where it serves HTTP, as `http://host:port`."""
        return f"http://{self.http}"

    def model(self, name: str, version: int = -1) -> Model:
        """A model, to be called without a socket."""
        return Model(self._server, name, version)

    def stop(self) -> None:
        """Answer what is under way, and end the server. Does nothing if it has ended."""
        self._server.stop()

    def __enter__(self) -> "BackgroundServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<halimede server at {self.url}>" if self._server.is_running else "<halimede server, stopped>"


def _address(host: str, port: int | None) -> str:
    shown = "127.0.0.1" if host in ("", "0.0.0.0") else host  # noqa: S104 - what it is called from here
    return "" if port is None else f"{shown}:{port}"
