"""`serve` and `serve_in_background`: functions, classes and files as models, from a script or a notebook.

The server itself is imported when it is started: workers import the modules that call these, too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halimede.functions.declaration import DeclarationError
from halimede.functions.places import is_served_already

if TYPE_CHECKING:
    from halimede.api.background import BackgroundServer

Model = str | Path | Callable[..., Any]
"""A function, a class or an object with `__call__`; the path of a file or directory; or a text as for `halimede`."""


def serve(*models: Model, **flags: Any) -> None:
    """Serve models until the process gets SIGINT or SIGTERM.

    Args:
        models: functions, classes, objects with `__call__`, paths, or texts as `halimede serve` takes them.
        flags: flags of `halimede serve`, with _ for -: `http_port=9000`.

    Raises:
        DeclarationError, TargetError: a model cannot be served.
        TypeError, ValueError: there is no such flag, or a value is none for it.
        RuntimeError: an event loop runs, as in a notebook, or this is not the main thread.
        SystemExit: the server has failed.
    """
    if is_served_already():
        return
    from halimede.api.foreground import serve_until_stopped

    serve_until_stopped(models, flags)


def serve_in_background(*models: Model, **flags: Any) -> "BackgroundServer":
    """Serve models beside the program, on free ports of this machine; `with` stops the server at the block's end.

    Args:
        models: functions, classes, objects with `__call__`, paths, or texts as `halimede serve` takes them.
        flags: flags of `halimede serve`, with _ for -. The addresses are 127.0.0.1 and the ports free ones unless
            they are given.

    Returns:
        The server, once its models are ready.

    Raises:
        DeclarationError, TargetError: a model cannot be served.
        TypeError, ValueError: there is no such flag, or a value is none for it.
        RuntimeError: the server has not started; the text says why.
    """
    if is_served_already():
        msg = (
            "a module that is imported for its functions serves in the background; do that under "
            "if __name__ == '__main__'"
        )
        raise DeclarationError(msg)
    from halimede.api.background import BackgroundServer
    from halimede.api.flags import options_from

    local = {f"{name}_address": "127.0.0.1" for name in ("http", "grpc", "metrics")}
    free = {f"{name}_port": 0 for name in ("http", "grpc", "metrics")}
    return BackgroundServer(models, options_from({**local, **free, **flags}))
