"""Messages between the host and its engine process, over a socket: pickles, each after its length.

Both ends are the same program of the same user; nobody else has the socket.
"""

import asyncio
import pickle
import struct
from dataclasses import dataclass
from typing import Any

_LENGTH = struct.Struct(">I")


class LostError(Exception):
    """An actor is gone; the text says why."""


class UnusableNodeError(LostError):
    """An actor could not be made where it was to be, nor would another one be there; the text says what to do."""


class UnreachableError(Exception):
    """An actor cannot be reached now, and may be gone; the text says why."""


@dataclass(frozen=True, slots=True)
class Call:
    """The host asks for something; `number` is in the answer."""

    number: int
    name: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call: a value, or an error."""

    number: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something has happened that nobody asked for."""

    name: str
    arguments: tuple[Any, ...]


def send(writer: asyncio.StreamWriter, message: Call | Answer | Event | tuple[str, str]) -> None:
    """Send a message."""
    data = pickle.dumps(message)
    writer.write(_LENGTH.pack(len(data)) + data)


async def receive(reader: asyncio.StreamReader) -> Any:
    """The next message.

    Raises:
        asyncio.IncompleteReadError, ConnectionError: the other end is gone.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 - see above
