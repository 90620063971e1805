"""`Server`: the engine inside an application, without sockets, with the names of Triton's Python API."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from halimede.api.embedded import EmbeddedServer, Given
from halimede.api.flags import options_from
from halimede.api.models import Model
from halimede.cli.services import metrics_of
from halimede.frontends.descriptions import server_metadata

_TRITON_NAMES: Final = {
    "server_id": "id",
    "startup_models": "load_model",
    "exit_timeout": "exit_timeout_secs",
    "rate_limiter_mode": "rate_limit",
    "backend_configuration": "backend_config",
}
"""Options of Triton's Python API → the flag that they are."""


class Server:
    """A server without sockets: models are loaded and called in this process.

    Starting it is explicit, or what `with` does. All methods may be called from any thread; none may be called from the
    thread of the server itself.
    """

    def __init__(self, models: Sequence[Given] = (), **options: Any) -> None:
        """A server that is not started.

        Args:
            models: functions, classes, paths, or texts as `halimede serve` takes them.
            options: flags of `halimede serve`, with _ for -, such as `model_repository="models"` or
                `model_control_mode="explicit"`. Triton's `server_id`, `startup_models`, `exit_timeout`,
                `rate_limiter_mode` and `backend_configuration` are understood too.

        Raises:
            TypeError: there is no such flag.
            ValueError: a value is none for its flag.
        """
        flags = {_TRITON_NAMES.get(name, name): value for name, value in options.items()}
        if isinstance(settings := flags.get("backend_config"), Mapping):
            flags["backend_config"] = [
                f"{backend},{key}={value}"
                for backend, each in settings.items()
                for key, value in each.items()
            ]
        closed = dict.fromkeys(("allow_http", "allow_grpc", "allow_metrics"), False)
        self._options = options_from({**flags, **closed})
        self._models = models
        self._server: EmbeddedServer | None = None

    def start(self, wait_until_ready: bool = True) -> "Server":
        """Start it, and load what is to be loaded at start.

        Args:
            wait_until_ready: return when the models are ready. Otherwise `ready` tells.

        Raises:
            ValueError: it cannot be started with these options.
            RuntimeError: a model cannot be loaded; the text says why. The server has stopped then.
            DeclarationError, TargetError: a model cannot be served.
        """
        if self._server is not None and self._server.is_running:
            msg = "the server runs already"
            raise RuntimeError(msg)
        self._server = EmbeddedServer(self._models, self._options)
        if wait_until_ready:
            self._server.wait_until_loaded()
        return self

    def stop(self) -> None:
        """Answer what is under way, unload the models and end. Does nothing if it has ended."""
        if self._server is not None:
            self._server.stop()

    def live(self) -> bool:
        """Whether it runs."""
        return self._server is not None and self._server.is_running

    def ready(self) -> bool:
        """Whether it runs, and its models are ready."""
        if not self.live():
            return False
        return self._started.ask(self._ready()).result()

    def metadata(self) -> dict[str, Any]:
        """Its name, version and extensions."""
        return server_metadata(self._options.id)

    def model(self, name: str, version: int = -1) -> Model:
        """A model, whether it is loaded or not.

        Args:
            name: its name.
            version: its version; -1 for the highest that is ready.
        """
        return Model(self._started, name, version)

    def models(self, exclude_not_ready: bool = False) -> dict[str, Model]:
        """The models of the repositories, by name."""
        names = self._started.ask(self._names(exclude_not_ready)).result()
        return {name: self.model(name) for name in names}

    def load(self, name: str, parameters: Mapping[str, str | bytes] | None = None) -> Model:
        """Load or reload a model, in control mode explicit, and return when it is ready.

        Args:
            name: its name.
            parameters: `config` → a configuration as JSON, and with it `file:PATH` → content.

        Raises:
            HalimedeError: it cannot be loaded; the text says why.
        """
        self._started.ask(self._started.engine.lifecycle.load(name, parameters or {})).result()
        return self.model(name)

    def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Unload a model, in control mode explicit. Requests under way are answered.

        Args:
            name: its name.
            unload_dependents: for an ensemble, unload the models that only it needs, too.

        Raises:
            HalimedeError: models cannot be unloaded in this control mode.
        """
        self._started.ask(self._started.engine.lifecycle.unload(name, unload_dependents)).result()

    def metrics(self) -> str:
        """The metrics in Prometheus's text format."""
        return self._started.ask(self._metrics()).result()

    @property
    def _started(self) -> EmbeddedServer:
        if self._server is None:
            msg = "the server is not started: call start(), or use it in a `with` block"
            raise RuntimeError(msg)
        return self._server

    async def _ready(self) -> bool:
        return self._started.engine.lifecycle.ready

    async def _names(self, ready_only: bool) -> list[str]:
        lifecycle = self._started.engine.lifecycle
        await lifecycle.refresh()
        return list(dict.fromkeys(row.name for row in lifecycle.index(ready_only)))

    async def _metrics(self) -> str:
        return metrics_of(self._options, self._started.engine, ()).render().decode()

    def __enter__(self) -> "Server":
        return self if self.live() else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
