"""Code that writes models with PyTorch, in a process of its own: frameworks share none with the tests' server."""

import subprocess
import sys
import tempfile
from pathlib import Path

TIMEOUT_S = 300


def run_code(code: str, *arguments: object) -> None:
    """Run it with those arguments, from a file: TorchScript reads the source of what it compiles."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "build.py"
        path.write_text(code)
        command = [sys.executable, "-W", "ignore", str(path), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
