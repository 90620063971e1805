"""Who serves the function: a program each, in an environment of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.errors import BenchmarkError
from benchmarks.tools import ROOT

PROGRAMS: Final = Path(__file__).parent / "programs"
BUILT: Final = ROOT / "build" / "functions"
NUMBERS: Final = [float(number) for number in range(8)]

_SYSTEM_PYTHON: Final = "/usr/bin/python3"

_KSERVE: Final = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [8], "data": NUMBERS}]}
_BATCHED: Final = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 8], "data": NUMBERS}]}


@dataclass(frozen=True, slots=True)
class Side:
    """Somebody who serves the function.

    Attributes:
        name: as the table has it.
        program: the file in `programs`.
        package: what is installed for it; "" for this environment.
        path: where requests go.
        body: what they bring.
        interpreter: what its environment is made with.
    """

    name: str
    program: str
    package: str
    path: str
    body: Any
    interpreter: str = sys.executable

    @property
    def source(self) -> Path:
        """The program."""
        return PROGRAMS / self.program

    @property
    def lines(self) -> int:
        """Lines of its code, without empty ones."""
        return sum(bool(line.strip()) for line in self.source.read_text().splitlines())

    @property
    def message(self) -> bytes:
        """The body of a request."""
        return json.dumps(self.body).encode()

    def python(self) -> Path:
        """The interpreter of its environment, which is made if it is not there.

        Raises:
            BenchmarkError: it cannot be installed.
        """
        if not self.package:
            return Path(sys.executable)
        directory = BUILT / self.package.partition("[")[0]
        python = directory / "bin" / "python"
        installed = directory / "installed"
        if not installed.is_file():
            subprocess.run([self.interpreter, "-m", "venv", "--without-pip", directory], check=True)
            done = subprocess.run(
                [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", self.package],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise BenchmarkError(f"pip install {self.package}: {done.stderr[-500:]}")
            installed.touch()
        return python

    def version(self) -> str:
        """Which release it is."""
        name = self.package.partition("[")[0] or "halimede"
        code = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
        return subprocess.run(
            [self.python(), "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()


SIDES: Final = (
    Side("Halimede", "halimede_process.py", "", "/v2/models/double/infer", _KSERVE),
    Side('Halimede, `isolation="none"`', "halimede_none.py", "", "/v2/models/double/infer", _KSERVE),
    Side("LitServe", "litserve_double.py", "litserve", "/predict", {"x": NUMBERS}),
    Side("BentoML", "bentoml_double.py", "bentoml", "/double", {"x": NUMBERS}),
    Side("Ray Serve", "ray_double.py", "ray[serve]", "/", {"x": NUMBERS}),
    # the interpreter that it embeds fits that of the distribution rather than others of the same version
    Side(
        "pytriton",
        "pytriton_double.py",
        "nvidia-pytriton",
        "/v2/models/double/infer",
        _BATCHED,
        _SYSTEM_PYTHON,
    ),
)
