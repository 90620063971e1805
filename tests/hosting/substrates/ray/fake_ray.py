"""Ray as an engine sees it, without a cluster: nodes, and one actor whose methods answer as they are told."""

import asyncio
import pickle
import struct
from collections import Counter
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError

from halimede.hosting.substrates.ray import engine as engine_module
from halimede.hosting.substrates.ray.engine import Engine
from halimede.hosting.substrates.ray.launch import ActorState
from halimede.hosting.substrates.ray.messages import Answer, Event

NODE = "1" * 56
"""Ray looks at the form of a node's id."""

NEVER = object()
"""What a method answers that does not."""


def unavailable() -> Exception:
    error: Exception = ActorUnavailableError("the connection broke", b"1" * 16)
    return error


def dead() -> Exception:
    error: Exception = ActorDiedError()
    return error


class FakeRay:
    """A cluster, and the engine's handle of the one actor there is.

    Attributes:
        nodes: name → whether it is alive.
        answers: method → what it answers next, in turn; the last of them again and again. Errors are raised.
        calls: how often each method was called.
        killed: the actor has been killed.
    """

    def __init__(self) -> None:
        self.nodes = {NODE: True}
        self.answers: dict[str, list[Any]] = {
            "where": [(NODE, "10.0.0.2")],
            "state": [ActorState()],
            "progress": [None],
            "events": [NEVER],
            "stop": [b""],
        }
        self.calls: Counter[str] = Counter()
        self.killed = False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be what is called Ray."""
        monkeypatch.setattr(ray, "remote", lambda _: self)
        monkeypatch.setattr(ray, "get_actor", lambda _: self)
        monkeypatch.setattr(ray, "kill", self._kill)
        monkeypatch.setattr(ray, "nodes", self._nodes)
        monkeypatch.setattr(engine_module, "available_resources_per_node", dict)
        monkeypatch.setattr(engine_module, "_NODE_LOOK_S", 0.02)
        monkeypatch.setattr(engine_module, "_RETRY_S", 0.01)
        monkeypatch.setattr(engine_module, "_LOOK_S", 0.0)

    def _kill(self, _: Any, *, no_restart: bool) -> None:
        self.killed = no_restart

    def _nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "Alive": alive, "NodeManagerAddress": "10.0.0.2", "Resources": {"CPU": 4.0}}
            for name, alive in self.nodes.items()
        ]

    # the class of actors, and an actor

    def options(self, **_: Any) -> "FakeRay":
        return self

    def remote(self, _: Any) -> "FakeRay":
        return self

    def __getattr__(self, method: str) -> "_Method":
        return _Method(self, method)


class _Method:
    def __init__(self, of: FakeRay, name: str) -> None:
        self._of = of
        self._name = name

    async def remote(self, *_: Any) -> Any:
        self._of.calls[self._name] += 1
        answers = self._of.answers[self._name]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is NEVER:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Told:
    """What an engine has sent to the host (`asyncio.StreamWriter`)."""

    def __init__(self) -> None:
        self.messages: list[Answer | Event] = []

    def write(self, data: bytes) -> None:
        size = struct.calcsize(">I")
        self.messages.append(pickle.loads(data[size:]))

    def events(self, name: str) -> list[tuple[Any, ...]]:
        """What was told under a name."""
        return [each.arguments for each in self.messages if isinstance(each, Event) and each.name == name]


def engine_on(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Told]:
    """An engine, and what it tells."""
    fake.install(monkeypatch)
    told = Told()
    return Engine("namespace", told), told  # type: ignore[arg-type]  # all that it uses of a stream
