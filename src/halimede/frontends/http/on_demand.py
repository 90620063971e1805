"""Requests for models that are not loaded yet."""

from halimede.engine.engine import Engine
from halimede.frontends.http.answers import end_with_client
from halimede.frontends.http.transport.exchange import Exchange


async def wait_for_model(
    engine: Engine, exchange: Exchange, name: str, version: int, timeout_s: float | None = None
) -> bool:
    """Have the model loaded that a request asks for: whether the client is still there then.

    The wait ends when the client leaves; the load goes on. Until the caller awaits something else, the model stays.

    Args:
        engine: what loads it.
        exchange: the request.
        name: the model.
        version: the version, -1 for the highest.
        timeout_s: how long to wait; None for as long as the settings say.

    Raises:
        HalimedeError: it cannot be loaded, or takes longer.
    """
    end_with_client(exchange)
    await engine.demand(name, version, timeout_s)
    exchange.on_disconnect = None
    return not exchange.closed
