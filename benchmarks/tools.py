"""perf_analyzer, Triton's load generator, fetched where it is missing.

The program is inside the Linux wheel of tritonclient 2.51.0. It links to libb64 (a Debian package) and to the
CUDA runtime, which a wheel of its own brings; it uses no GPU.
"""

import ctypes
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / "build" / "tools"
PERF_ANALYZER_WHEEL = "tritonclient==2.51.0"
PERF_ANALYZER_MEMBER = "tritonclient-2.51.0.data/data/bin/perf_analyzer"
CUDA_RUNTIME_WHEEL = "nvidia-cuda-runtime-cu12"
CUDA_RUNTIME_MEMBER = "nvidia/cuda_runtime/lib/libcudart.so.12"


@dataclass(frozen=True, slots=True)
class PerfAnalyzer:
    """Where the program lies, and the directory of the libraries that it loads."""

    program: Path
    libraries: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which it runs."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.libraries)}


def perf_analyzer() -> PerfAnalyzer:
    """The program, downloaded into build/tools the first time.

    Raises:
        BenchmarkError: it is not to be had; the text says what to do.
    """
    program = from_wheel(PERF_ANALYZER_WHEEL, PERF_ANALYZER_MEMBER)
    program.chmod(0o755)
    try:
        ctypes.CDLL("libb64.so.0d")
    except OSError:
        subprocess.run([ROOT / "scripts" / "install-debian-package.sh", "libb64-0d"], check=True)
    return PerfAnalyzer(program, from_wheel(CUDA_RUNTIME_WHEEL, CUDA_RUNTIME_MEMBER).parent)


def from_wheel(requirement: str, member: str) -> Path:
    """One file of a wheel, under build/tools.

    Raises:
        BenchmarkError: there is no such wheel for this platform, or it does not hold the file.
    """
    path = TOOLS / member
    if path.exists():
        return path
    file = wheel(requirement)
    with zipfile.ZipFile(file) as archive:
        if member not in archive.namelist():
            raise BenchmarkError(
                f"{file.name} holds no {member}: perf_analyzer exists for Linux on x86-64 only"
            )
        archive.extract(member, TOOLS)
    return path


def wheel(requirement: str) -> Path:
    """A wheel for this platform, downloaded into build/tools/wheels the first time.

    Raises:
        BenchmarkError: pip does not bring it; the text has pip's last word.
    """
    directory = TOOLS / "wheels" / requirement
    if not list(directory.glob("*.whl")):
        pip("download", "--no-deps", "--only-binary=:all:", "--dest", directory, requirement)
    [file] = directory.glob("*.whl")
    return file


def pip(*arguments: str | Path) -> None:
    """Run pip.

    Raises:
        BenchmarkError: it failed; the text has its last word.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise BenchmarkError(f"pip {arguments[0]} failed: {done.stderr.strip().rpartition(chr(10))[2]}")
