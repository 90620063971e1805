"""A Redis server for tests: Debian's `redis-server`, on a Unix socket or a free port."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until


class RedisServer:
    """A Redis server that keeps nothing on disk.

    Attributes:
        socket: its Unix socket.
        port: its port on 127.0.0.1; 0 for none.
    """

    def __init__(self, directory: Path, *flags: str, port: int = 0) -> None:
        self.socket = directory / "redis.sock"
        self.port = port
        self._directory = directory
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> str:
        """How `--cache-config` names it."""
        return f"redis,host=127.0.0.1,port={self.port}" if self.port else f"redis,host={self.socket}"

    def start(self) -> None:
        """Start it, and return once it answers."""
        program = shutil.which("redis-server")
        assert program is not None, "these tests need redis-server: apt-get install redis-server"
        self._process = subprocess.Popen(
            [
                program, "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket),
                "--save", "", "--appendonly", "no", "--dir", str(self._directory), *self._flags,
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._answers, "redis-server")

    def ask(self, *words: str) -> bytes:
        """What it says to a command, as it comes over the wire."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.socket))
            request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            connection.sendall(request.encode())
            return connection.recv(1 << 16)

    def kill(self) -> None:
        """End it as a crash does; what it holds is lost."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self.kill()

    def _answers(self) -> bool:
        try:
            return bool(self.ask("PING"))
        except OSError:
            return False


@contextmanager
def redis_server(directory: Path, *flags: str, port: int = 0) -> Iterator[RedisServer]:
    """A running Redis server, ended at the end of the block."""
    server = RedisServer(directory, *flags, port=port)
    try:
        server.start()
        yield server
    finally:
        server.stop()
