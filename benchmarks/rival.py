"""Triton Inference Server 2.51 with its Python backend, fetched where it is missing.

The server is inside the wheel of nvidia-pytriton 0.7.0, with a program for each version of Python that runs the
models (the "stub"); that embeds Python's shared library. Its models need numpy below 2, which a virtual environment
brings.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from ctypes.util import find_library
from functools import cache, partial
from pathlib import Path
from typing import IO

from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, free_ports, halimede, process, server_arguments
from benchmarks.tools import ROOT, TOOLS, pip, wheel
from benchmarks.workload import Sample, Sides

WHEEL = "nvidia-pytriton==0.7.0"
NUMPY = "numpy<2"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
DIRECTORY = TOOLS / "nvidia-pytriton-0.7.0"
TRITON = DIRECTORY / "pytriton" / "tritonserver"
PROGRAM = TRITON / "bin" / "tritonserver"
STUB = "triton_python_backend_stub"
ENVIRONMENT = TOOLS / f"tritonserver-python{PYTHON}"
SHARED_MEMORY = Path("/dev/shm")
LOG_LINES = 20


class UnavailableError(BenchmarkError):
    """The rival does not run on this machine; the text says why."""


@cache
def environment() -> dict[str, str]:
    """The variables with which the server runs; it is set up in build/tools the first time.

    Raises:
        UnavailableError: it is not to be had here.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UnavailableError(f"it exists for Linux on x86-64, and this is {platform.platform()}")
    library_directory = sysconfig.get_config_var("LIBDIR")
    try:
        unpack()
        place_stub()
        install_numpy()
        need_python_library(Path(library_directory))
    except (BenchmarkError, subprocess.CalledProcessError) as error:
        raise UnavailableError(str(error)) from error
    return {
        **os.environ,
        "LD_LIBRARY_PATH": f"{DIRECTORY / 'nvidia_pytriton.libs'}:{library_directory}",
        "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}",  # where the stub's Python looks for itself
    }


def unpack() -> None:
    """The whole wheel; its list of files comes last."""
    if list(DIRECTORY.glob("*.dist-info/RECORD")):
        return
    with zipfile.ZipFile(wheel(WHEEL)) as archive:
        archive.extractall(DIRECTORY)
    PROGRAM.chmod(0o755)


def place_stub() -> None:
    """Put the stub for this Python beside the backend."""
    stub = TRITON / "python_backend_stubs" / PYTHON / STUB
    if not stub.exists():
        raise BenchmarkError(f"its Python backend has no stub for Python {PYTHON}")
    place = TRITON / "backends" / "python" / STUB
    if not place.exists() or place.read_bytes() != stub.read_bytes():
        place.unlink(missing_ok=True)
        shutil.copyfile(stub, place)
        place.chmod(0o755)


def install_numpy() -> None:
    """Make the environment of its models."""
    if not list(ENVIRONMENT.glob("lib/*/site-packages/numpy-*.dist-info/RECORD")):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", ENVIRONMENT], check=True)
        pip("--python", ENVIRONMENT / "bin" / "python", "install", "--only-binary=:all:", NUMPY)


def need_python_library(directory: Path) -> None:
    """See that the shared library that the stub embeds is there, be it this interpreter's or Debian's."""
    if not (directory / f"libpython{PYTHON}.so.1.0").exists() and not find_library(f"python{PYTHON}"):
        subprocess.run([ROOT / "scripts" / "install-debian-package.sh", f"libpython{PYTHON}"], check=True)


@contextmanager
def tritonserver(
    repository: Path,
    on_cores: Collection[int] | None = None,
    arguments: Sequence[str] = (),
    *,
    ready: bool = True,
) -> Iterator[Server]:
    """The server on free ports, ready, or if that is not asked for as soon as its HTTP port is open.

    Raises:
        BenchmarkError: it does not start; the text has its last words.
    """
    variables, ports = environment(), free_ports(3)
    prefix = f"halimede-benchmarks-{os.getpid()}-{ports[0]}-"
    command: list[str | Path] = [PROGRAM, *server_arguments(repository, ports), *arguments]
    command += [f"--backend-directory={TRITON / 'backends'}"]
    command += [f"--backend-config=python,shm-region-prefix-name={prefix}"]
    try:
        with (
            tempfile.TemporaryFile() as log,
            process(command, on_cores, env=variables, stdout=log, stderr=subprocess.STDOUT) as child,
        ):
            server = Server(child, *ports)
            try:
                server.await_ready() if ready else server.await_answer()
            except BenchmarkError as error:
                raise BenchmarkError(f"tritonserver: {error}\n{last_lines(log)}") from None
            yield server
    finally:
        for region in SHARED_MEMORY.glob(f"{prefix}*"):  # what a killed stub has left
            region.unlink(missing_ok=True)


def last_lines(log: IO[bytes]) -> str:
    """The end of what the server has written."""
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-LOG_LINES:])


@contextmanager
def side_by_side(
    repository: Path,
    measurement: Callable[[Server], Sample],
    on_cores: Collection[int],
    arguments: Sequence[str] = (),
    own: Sequence[str] = (),
) -> Iterator[Sides]:
    """The same measurement of this server and of tritonserver, both on those cores with the same models.

    Args:
        repository: the models.
        measurement: what is done with each.
        on_cores: where both run.
        arguments: further ones of both.
        own: further ones of this server.
    """
    with (
        halimede(repository, on_cores, [*arguments, *own]) as ours,
        tritonserver(repository, on_cores, arguments) as theirs,
    ):
        yield Sides(partial(measurement, ours), partial(measurement, theirs))
