"""Invocations of models that are loaded when they are wanted (`--model-control-mode=ondemand`)."""

from collections.abc import Callable
from typing import Final

from halimede.engine.engine import Engine
from halimede.frontends.http.on_demand import wait_for_model
from halimede.frontends.http.transport.exchange import Exchange

TIMEOUT_S: Final = 60.0
"""How long an invocation may wait for its model to be loaded: as long as the platform waits for the answer."""

Serve = Callable[[Exchange, str], None]
"""Serves a request on the model of that name, now or later; raises the HalimedeError to answer with."""


async def load_and_serve(engine: Engine, exchange: Exchange, name: str, serve: Serve) -> None:
    """Have a model loaded, then serve the request for it. A client that leaves meanwhile stops no load.

    Raises:
        HalimedeError: the request is answered with this.
    """
    if await wait_for_model(engine, exchange, name, -1, TIMEOUT_S):
        serve(exchange, name)
