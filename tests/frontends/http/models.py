"""A server of real models over HTTP, in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halimede.core.clock import LoopClock
from halimede.engine.engine import Engine
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode, EngineSettings
from halimede.engine.tracing.settings import TraceConfig
from halimede.frontends.http.handler import create_handler
from halimede.frontends.http.settings import HttpSettings
from halimede.frontends.http.transport.exchange import Exchange
from tests.frontends.http.serving import Served, serve
from tests.support.loops import LoopThread

ECHO = """
backend: "identity" max_batch_size: 8
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] label_filename: "labels.txt" }]
"""
STRINGS = """
backend: "identity"
input [{ name: "INPUT0" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_STRING dims: [ 1 ] }]
"""
HALF = """
backend: "identity"
input [{ name: "INPUT0" data_type: TYPE_FP16 dims: [ 2 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP16 dims: [ 2 ] }]
"""
SLOW = ECHO + 'parameters { key: "execute_delay_ms" value { string_value: "300" } }'
SQUARE = """
backend: "square" model_transaction_policy { decoupled: true }
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]
"""
MODELS = {
    "echo": ECHO,
    "strings": STRINGS,
    "half": HALF,
    "slow": SLOW,
    "square": SQUARE,
    "never_loaded": ECHO,
}


def write_repository(directory: Path) -> None:
    """Write `MODELS`; `echo` has the versions 1 and 3, and labels."""
    for name, config in MODELS.items():
        model = directory / name
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(config)
        (model / "labels.txt").write_text("cat\ndog\n")
    (directory / "echo" / "3").mkdir()
    with (directory / "echo" / "config.pbtxt").open("a") as file:
        file.write("version_policy { all {} }")


class ModelServer:
    """The server, and the engine behind it."""

    def __init__(self, served: Served, engine: Engine) -> None:
        self.served = served
        self.engine = engine
        self.address = f"127.0.0.1:{served.port}"


@contextmanager
def serve_models(
    repository: Path,
    settings: HttpSettings | None = None,
    *load: str,
    tracing: TraceConfig | None = None,
    kernel_bytes: int | None = None,
) -> Iterator[ModelServer]:
    """Explicit mode, with the models `load` loaded."""
    engines: list[Engine] = []

    async def start(loop: LoopThread) -> LoopClock:
        clock = LoopClock(loop.loop)
        engine_settings = EngineSettings(
            (repository,), ControlMode.EXPLICIT, load_models=load, tracing=tracing or TraceConfig()
        )
        engine = Engine(engine_settings, clock, Lifecycle(engine_settings, clock, loop.loop))
        engines.append(engine)
        assert await engine.lifecycle.start()
        return clock

    def handle(exchange: Exchange) -> None:
        handler(exchange)

    with serve(handle, kernel_bytes=kernel_bytes) as served:
        clock = served.loop.run(start(served.loop))
        (engine,) = engines
        handler = create_handler(engine, settings)
        try:
            yield ModelServer(served, engine)
        finally:
            served.loop.run(engine.lifecycle.stop(10))
            served.loop.call(engine.tracing.close, 10)
            served.loop.call(clock.close)
