"""Workers that run `stand_in.run`, for tests of starting and ending processes."""

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from halimede.workers.process import WorkerProcess
from halimede.workers.zygote import Zygote, Zygotes
from tests.support.loops import LoopThread

ENVIRONMENT: Mapping[str, str | None] = {"PYTHONPATH": str(Path(__file__).parent)}

MAIN = "stand_in:run"


class Nursery:
    """Workers that do the deeds of `stand_in`, and the loop on which they are served."""

    def __init__(self, loop: LoopThread) -> None:
        self.loop = loop
        self.zygotes = Zygotes(MAIN)

    def spawn(
        self,
        *deeds: str,
        environment: Mapping[str, str | None] | None = None,
        python: Path | None = None,
        name: str = "m",
    ) -> WorkerProcess:
        """A worker that does the deeds, one after the other."""
        environment = {**ENVIRONMENT, **(environment or {})}
        settings = {"deeds": list(deeds)}
        return self.zygotes.spawn(self.loop.loop, python, environment, settings, name)

    def end(self, process: WorkerProcess, kill: bool = False, within_s: float = 20) -> str:
        """How the process ended."""
        return self.loop.run(process.end(kill, within_s)).words

    @property
    def zygote(self) -> Zygote:
        """The only zygote."""
        assert self.zygotes._zygotes is not None  # noqa: SLF001 - what is left is seen only inside
        (zygote,) = self.zygotes._zygotes.values()  # noqa: SLF001 - what is left is seen only inside
        return zygote


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery in which nothing is left at the end."""
    with LoopThread() as loop:
        made = Nursery(loop)
        try:
            yield made
        finally:
            made.zygotes.close()


def heard(process: WorkerProcess) -> bytes:
    """The next message of the worker; b"" when its end of the socket is closed."""
    process.work.settimeout(60)
    try:
        return process.work.recv(65536)
    finally:
        process.work.setblocking(False)


def told(process: WorkerProcess) -> dict[str, Any]:
    """What the worker tells of itself."""
    report: dict[str, Any] = ast.literal_eval(heard(process).decode())
    return report


def open_files() -> list[str]:
    """What this process's descriptors are open on."""
    files = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            files.append(str(each.readlink()))
    return files
