"""A Ray cluster of one node, on this machine, that the host starts if it is given none.

It outlives a host that is killed, and is found again by the file that it leaves in the host's directory.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import orjson

from halimede.core.ports import free_port
from halimede.hosting.substrates.processes import Watched, start_time
from halimede.hosting.substrates.ray.engine_process import EngineError

_STARTING_S = 90.0
_ENDING_S = 20.0
_POLL_S = 0.1
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - where Ray listens
_OBJECT_STORE_BYTES = 80 << 20
"""The least that Ray allows: nothing that is large goes through it."""

_ENVIRONMENT = {
    "RAY_worker_niceness": "0",  # instances are started by Ray's workers, and inherit it
    "RAY_USAGE_STATS_ENABLED": "0",
}


_AUTH_MODE = "RAY_AUTH_MODE"


class OwnCluster:
    """The cluster of one host. Lives on the event loop.

    Attributes:
        is_found: an earlier process of the host started it.
        variables: those with which processes connect to it.
    """

    def __init__(self, directory: Path, host_id: str, on_gone: Callable[[], None]) -> None:
        """A cluster whose file and log are in a directory; `on_gone` is told when it has ended by itself."""
        self._on_gone = on_gone
        self._file = directory / "ray.json"
        self._log = directory / "ray.log"
        self._sessions = Path(tempfile.gettempdir()) / f"halimede-ray-{host_id[:8]}"
        self._watched: Watched | None = None
        self._stopping = False
        self.is_found = False
        self.variables: Mapping[str, str] = {}

    async def start(self) -> str:
        """Find the cluster, or start it: its address.

        Raises:
            EngineError: it does not start.
        """
        self._stopping = False
        found = self._found()
        self.is_found = found is not None
        if found is not None:
            return found
        self.variables = {_AUTH_MODE: _auth_mode()}
        port = free_port(_EVERYWHERE)
        client_port = free_port(_EVERYWHERE, [port])
        # neither logs nor the autoscaler are looked at here
        command = [
            str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}",
            "--include-dashboard=false", "--include-log-monitor=false", "--no-monitor", "--disable-usage-stats",
            f"--temp-dir={self._sessions}",
            f"--object-store-memory={_OBJECT_STORE_BYTES}", f"--ray-client-server-port={client_port}",
        ]  # fmt: skip
        process = await asyncio.to_thread(self._spawn, command)
        self._watched = Watched(process.pid, lambda: self._ended(process))
        try:
            address = await self._address(process.pid, port)
            document = {
                "address": address,
                "pid": process.pid,
                "began": start_time(process.pid),
                "auth": self.variables[_AUTH_MODE],
            }
            self._file.write_bytes(orjson.dumps(document))
        except BaseException:
            await self.stop()  # nobody would find it
            raise
        return address

    def _spawn(self, command: list[str]) -> "subprocess.Popen[bytes]":
        with self._log.open("wb") as output:
            return subprocess.Popen(  # noqa: S603 - Ray's own
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_ENVIRONMENT, **self.variables},
                start_new_session=True,
            )

    def _found(self) -> str | None:
        """The address of the cluster that an earlier process of the host started, if it is there."""
        try:
            document: Mapping[str, str | int] = orjson.loads(self._file.read_bytes())
            pid, began = int(document["pid"]), int(document["began"])
            self._watched = Watched(pid, self._ended)
        except (OSError, ValueError, KeyError):
            return None
        if began and start_time(pid) == began:
            self.variables = {_AUTH_MODE: str(document["auth"])} if "auth" in document else {}
            return str(document["address"])
        self._watched.forget()
        self._watched = None
        return None

    async def _address(self, pid: int, port: int) -> str:
        """The address of a cluster that is starting, once it says that it has."""
        assert self._watched is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(_STARTING_S):
                while not self._watched.ended.is_set():
                    text = await asyncio.to_thread(self._log.read_text, errors="replace")
                    for line in text.splitlines():
                        if "Local node IP:" in line:
                            return f"{line.rpartition(':')[2].strip()}:{port}"
                    await asyncio.sleep(_POLL_S)
        raise EngineError(f"Ray does not start on this machine (process {pid}); {self._log} says why")

    def _ended(self, process: "subprocess.Popen[bytes] | None" = None) -> None:
        if process is not None:
            process.wait()
        if not self._stopping:
            self._on_gone()

    async def stop(self) -> None:
        """End the cluster, and what runs on it."""
        self._stopping = True
        if self._watched is not None:
            if not self._watched.ended.is_set():
                await self._watched.end(_ENDING_S)
            self._watched = None
        self._file.unlink(missing_ok=True)

    def leave(self) -> None:
        """Let it run on."""
        if self._watched is not None:
            self._watched.forget()


def _auth_mode() -> str:
    """How processes prove that they belong to the cluster: as its user says, or by a token if the user has one.

    `ray start` decides so too, but whoever connects to its address does not.
    """
    mode = os.environ.get(_AUTH_MODE)
    if mode is not None:
        return mode
    is_given = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return "token" if is_given or (Path.home() / ".ray" / "auth_token").exists() else "disabled"
