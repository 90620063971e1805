"""Programs that stand in for servers, and a substrate that starts them."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from halimede.hosting.http.ping import ping
from halimede.hosting.identity import Scope
from halimede.hosting.substrates.base import InstanceRequest, Resources, RunningInstance
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.local import LocalSubstrate
from halimede.hosting.substrates.processes import marked
from halimede.hosting.substrates.program import can_isolate
from tests.support.waiting import let_pass_async, wait_until_async

MACHINE = Resources(4, 8 << 30, 2)
SMALL = Resources(1, 64 << 20)

SERVE = """#!{python} -SE
import os, signal, socket, subprocess, sys, time
assert sys.argv[1:] == ["serve"], sys.argv
exec(os.environ.get("SCRIPT", ""))
listener = socket.create_server(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])))
while True:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nOK")
"""
"""Runs what the variable SCRIPT holds, and then answers everything with 200."""

needs_namespaces = pytest.mark.skipif(not can_isolate(), reason="user namespaces are not allowed here")


def write_serve(directory: Path) -> Path:
    """The program."""
    program = directory / "serve-program"
    program.write_text(SERVE.format(python=sys.executable))
    program.chmod(0o755)
    return program


def request_for(
    program: Path | str,
    script: str = "",
    *,
    number: int = 0,
    resources: Resources = SMALL,
    model: Path | None = None,
    multi_model: bool = False,
    environment: Mapping[str, str] | None = None,
) -> InstanceRequest:
    """A request for an instance that runs a script and then serves."""
    variables = {"SCRIPT": script, **(environment or {})}
    return InstanceRequest(
        f"i-{number}", *Scope(), "e", "A", "f-1", str(program), variables, model, multi_model, resources
    )


class Exits(dict[str, str]):
    """Which instances have ended by themselves, and why."""

    async def of(self, instance_id: str) -> str:
        """Why an instance has ended, when it has."""
        await wait_until_async(lambda: instance_id in self)
        return self[instance_id]


@asynccontextmanager
async def substrate_in(
    directory: Path, *, leave: bool = False, oversubscription: float = 8.0
) -> AsyncIterator[tuple[LocalSubstrate, Exits]]:
    """A substrate; nothing of it runs afterwards unless it is to be left."""
    substrate = LocalSubstrate(directory, Images(), MACHINE, oversubscription)
    exits = Exits()
    await substrate.start(exits.__setitem__)
    try:
        yield substrate, exits
    finally:
        await substrate.stop(leave=leave)
        if not leave:
            assert not marked(directory)
            assert not list((directory / "instances").iterdir())


async def answers(running: RunningInstance) -> None:
    """Return once the instance answers a ping."""
    async with asyncio.timeout(60):
        while await ping(running.host, running.port, 1):
            await let_pass_async(0.01, "another process is to open its socket")


async def text_of(path: Path) -> str:
    """What is in a file, once there is a whole line in it."""
    await wait_until_async(lambda: path.exists() and path.read_text().endswith("\n"))
    return path.read_text().strip()  # noqa: ASYNC240 - of a test


def wait_for(pid: int) -> None:
    """Wait for a child that has ended, which nobody else waits for."""
    os.waitpid(pid, 0)


def entries(directory: str) -> list[str]:
    """What is in a directory."""
    return sorted(entry.name for entry in os.scandir(directory))


def open_files() -> Counter[str]:
    """What this process holds open: kinds of descriptors, or paths, and how often."""
    found: Counter[str] = Counter()
    for descriptor in entries("/proc/self/fd"):
        with suppress(OSError):  # the one that the directory was read with
            found[str(Path(f"/proc/self/fd/{descriptor}").readlink()).partition(":[")[0]] += 1
    return found


def lives(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def zombies() -> list[int]:
    """Children of this process that have ended and were not waited for."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                fields = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                found.append(int(entry.name))
    return found
