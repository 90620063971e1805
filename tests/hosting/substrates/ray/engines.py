"""An engine that answers as it is told, in place of the process that speaks to Ray."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.ray import substrate as substrate_module
from halimede.hosting.substrates.ray.launch import ActorState
from halimede.hosting.substrates.ray.messages import Event
from halimede.hosting.substrates.ray.placement import Node
from halimede.hosting.substrates.ray.settings import RaySettings
from halimede.hosting.substrates.ray.substrate import RaySubstrate

ADDRESS = "10.0.0.1"


class FakeEngine:
    """What the host asks, and what it gets (`EngineProcess`).

    Attributes:
        actors: what there is of each, by its name.
        launched: what each launch gives in turn: an instance, or an error that it raises.
        asked: what a method of an actor gives, or an error that it raises.
        calls: what was called, with its arguments.
        tell: tells the host something.
    """

    def __init__(self) -> None:
        self.node = "head"
        self.address = ADDRESS
        self.actors: dict[str, ActorState] = {}
        self.launched: list[Any] = []
        self.asked: Any = None
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.tell: Callable[[Event], None]
        self.lose: Callable[[], None]

    def __call__(self, on_event: Callable[[Event], None], on_lost: Callable[[], None]) -> "FakeEngine":
        self.tell, self.lose = on_event, on_lost
        return self

    async def start(self, address: str, namespace: str, log: Path, variables: Mapping[str, str]) -> None:
        """There is nothing to connect to."""

    async def call(self, name: str, *arguments: Any, **_: Any) -> Any:
        self.calls.append((name, arguments))
        match name:
            case "nodes":
                return [Node("head", ADDRESS, {"CPU": 4.0}, {"CPU": 4.0}, {})]
            case "actors":
                return list(self.actors)
            case "adopt":
                return self.actors[arguments[0]]
            case "launch":
                return _given(self.launched.pop(0))
            case "ask":
                return _given(self.asked)
        return None

    async def close(self) -> None:
        """There is nothing to end."""

    def terminated(self) -> list[str]:
        """The instances that were ended."""
        return [arguments[0] for name, arguments in self.calls if name == "terminate"]


def _given(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


@asynccontextmanager
async def substrate_with(
    directory: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RaySubstrate]:
    """A substrate on a cluster of others that has an engine, and is connected."""
    monkeypatch.setattr(substrate_module, "EngineProcess", engine)
    substrate = RaySubstrate(directory, Images(), 8.0, RaySettings("auto"))
    await substrate.open()
    try:
        yield substrate
    finally:
        await substrate.stop(leave=True)
