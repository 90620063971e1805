"""Samples the stacks of this process with py-spy, a program of its own that reads them out of this process's memory.

A sampler inside the process would see little: it has to hold Python's interpreter, so that it finds the event loop
where that lets go of it, not where it spends its time. py-spy needs no interpreter, and costs nothing while it does not
run.
"""

import asyncio
import ctypes
import json
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from halimede.core.errors import InternalError, UnavailableError
from halimede.frontends.profiling.other_processes import OtherProcesses
from halimede.frontends.profiling.profile import Profile, read_samples

MISSING: Final = "profiling needs py-spy, which is not installed: pip install 'halimede[profile]'"

_STARTS_AND_ENDS_S: Final = 30
_PR_SET_PTRACER: Final = 0x59616D61
_ANY: Final = ctypes.c_ulong(-1)
_ERROR_CHARACTERS: Final = 500


def program() -> str:
    """Where py-spy is; "" if it is not installed."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy") or ""


class Sampler:
    """Takes one profile at a time. Lives on the event loop."""

    def __init__(self) -> None:
        self._busy = False

    async def profile(self, seconds: int, rate: int) -> tuple[Profile, dict[str, Any]]:
        """What this process does in the next seconds, and the same as speedscope's document.

        Raises:
            UnavailableError: another profile is being taken, or there is no py-spy.
            InternalError: py-spy failed; the text has its reason.
        """
        if self._busy:
            raise UnavailableError("a profile is being taken already: try again when it is done")
        path = program()
        if not path:
            raise UnavailableError(MISSING)
        self._busy = True
        try:
            with tempfile.TemporaryDirectory(prefix="halimede-profile-") as scratch, _may_be_read():
                file = Path(scratch) / "profile.json"
                others = OtherProcesses()
                pid = await _record(path, file, seconds, rate)
                document: dict[str, Any] = json.loads(await asyncio.to_thread(file.read_bytes))
        finally:
            self._busy = False
        profile = Profile(os.getpid(), seconds, rate, read_samples(document), others.measure(but=pid))
        return profile, document


async def _record(path: str, file: Path, seconds: int, rate: int) -> int:
    """Let py-spy write the file: the number that its process had."""
    arguments = ["record", "--pid", str(os.getpid()), "--duration", str(seconds), "--rate", str(rate)]
    arguments += ["--format", "speedscope", "--full-filenames", "--output", str(file)]
    child = await asyncio.create_subprocess_exec(
        path,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds + _STARTS_AND_ENDS_S):
            _, said = await child.communicate()
    except TimeoutError:
        raise InternalError(f"py-spy did not end within {seconds + _STARTS_AND_ENDS_S} s") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        words = " ".join(said.decode(errors="replace").split())[-_ERROR_CHARACTERS:]
        hint = "; in a container, it needs the capability SYS_PTRACE" if "ermission" in words else ""
        raise InternalError(f"py-spy ended with code {child.returncode}: {words}{hint}")
    return child.pid


@contextmanager
def _may_be_read() -> Iterator[None]:
    """Let processes below this one read its memory, where Yama (a Linux security module) forbids it."""
    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
    try:
        yield
    finally:
        library.prctl(_PR_SET_PTRACER, ctypes.c_ulong(0), 0, 0, 0)
