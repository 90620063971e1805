"""Models taken from a node's store, here and in other processes."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.node.store import HeldModel, NodeStore

_PROGRAM = """
import json, sys, threading
from pathlib import Path
from halimede.hosting.errors import ApiError
from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.node.store import NodeStore

asked = json.loads(sys.argv[1])
store = NodeStore(Path(asked["directory"]), asked["limit"])
say = lambda **fields: print(json.dumps(fields), flush=True)
try:
    held = store.take(
        Offer(**asked["offer"]), 60.0, lambda done, total: say(done=done, total=total), threading.Event()
    )
except ApiError as error:
    say(code=error.code, message=error.message, status=error.status)
else:
    say(directory=str(held.directory), disk_bytes=held.disk_bytes)
    sys.stdin.readline()
"""


class Taking:
    """A store of a node, and what was told of its fetches.

    Attributes:
        store: the store.
        progress: what was told.
        stop: ends what is under way.
    """

    def __init__(self, directory: Path, limit: int = 0, now: Callable[[], float] = time.time) -> None:
        self.directory = directory
        self.limit = limit
        self.store = NodeStore(directory, limit, now)
        self.progress: list[tuple[int, int]] = []
        self.stop = threading.Event()

    def take(self, offer: Offer, timeout_s: float = 60.0) -> HeldModel:
        """A model."""
        return self.store.take(offer, timeout_s, lambda *done: self.progress.append(done), self.stop)

    def refusal(self, offer: Offer, timeout_s: float = 60.0) -> ApiError:
        """Why a model cannot be taken."""
        with pytest.raises(ApiError) as raised:
            self.take(offer, timeout_s)
        return raised.value

    def names(self) -> list[str]:
        """What there is in the directory, but for the lock."""
        return sorted(path.name for path in self.directory.iterdir() if path.name != "lock")

    def process(self, offer: Offer) -> "TakingProcess":
        """Another process that takes a model, and holds it."""
        return TakingProcess(self, offer)


class TakingProcess:
    """A process that takes a model, and holds it until it is released or killed."""

    def __init__(self, node: Taking, offer: Offer) -> None:
        asked = {"directory": str(node.directory), "limit": node.limit, "offer": asdict(offer)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[dict[str, int | str]] = []

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def wait_for(self, key: str, least: int = 0) -> dict[str, int | str]:
        """What it says when it says something with a key, and a value of at least so much if that is a number."""
        for line in self._output:
            said = json.loads(line)
            self.said.append(said)
            value = said.get(key)
            if value is not None and (isinstance(value, str) or value >= least):
                return dict(said)
        raise AssertionError(f"it ended, and said {self.said}")

    def release(self) -> None:
        """Have it end."""
        self._process.communicate("\n", timeout=60)

    def kill(self) -> None:
        """End it without a chance to do anything."""
        self._process.kill()
        self._process.communicate(timeout=60)
