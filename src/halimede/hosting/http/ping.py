"""Whether an instance answers: `GET /ping`, as SageMaker asks its containers."""

import asyncio
from contextlib import suppress


async def ping(host: str, port: int, timeout_s: float) -> str:
    """Ask an instance whether it is well: "" if it is, else what is wrong."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _ping(host, port)
    except TimeoutError:
        return f"it did not answer a ping within {timeout_s:g} seconds"
    except OSError as error:
        return f"it accepts no connection ({error.strerror or error})"
    except ValueError:  # a line without an end
        return "it answers a ping with something else than HTTP"


async def _ping(host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /ping HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        line = await reader.readline()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    parts = line.split()
    if len(parts) > 1 and parts[1] == b"200":
        return ""
    return f"it answers a ping with {line.decode(errors='replace').strip() or 'nothing'}"
