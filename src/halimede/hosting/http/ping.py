"""Whether an instance answers: `GET /ping`, as SageMaker asks its containers."""

from halimede.http1.client import CallError, call_once

_SHOWN = 300


async def ping(host: str, port: int, timeout_s: float) -> str:
    """Ask an instance whether it is well: "" if it is, else what is wrong."""
    try:
        status, body = await call_once(host, port, "GET", "/ping", timeout_s)
    except CallError as error:
        return str(error)
    if status == 200:
        return ""
    said = " ".join(body.decode(errors="replace").split())[:_SHOWN]
    return f"it answers a ping with status {status}" + (f": {said}" if said else "")
