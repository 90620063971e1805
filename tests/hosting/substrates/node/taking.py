"""Models taken from a node's store, here and in other processes."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

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
    """A process that takes a model, and holds it until it is released or killed.

    A thread reads what it says, so that any number of threads may wait for something in it.
    """

    def __init__(self, node: Taking, offer: Offer) -> None:
        asked = {"directory": str(node.directory), "limit": node.limit, "offer": asdict(offer)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._said: list[dict[str, int | str]] = []
        self._has_ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._changed:
                    self._said.append(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def wait_for(self, key: str, least: int = 0) -> dict[str, int | str]:
        """The first that it says with a key, and a value of at least so much if that is a number."""

        def matching() -> list[dict[str, int | str]]:
            return [
                said for said in self._said if isinstance(value := said.get(key, -1), str) or value >= least
            ]

        with self._changed:
            assert self._changed.wait_for(lambda: matching() or self._has_ended, 60), f"it said {self._said}"
            assert matching(), f"it ended, and said {self._said}"
            return matching()[0]

    def release(self) -> None:
        """Have it end."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
        self._end()

    def kill(self) -> None:
        """End it without a chance to do anything."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(60)
        self._reader.join(60)
