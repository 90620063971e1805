"""The walk-throughs, built small and run as their pages say."""

import re
import subprocess
import sys
from pathlib import Path


def run_module(module: str, *arguments: object) -> str:
    """What `python -m MODULE ARGUMENTS` prints, without the end of its last line."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def without_numbers(text: str) -> str:
    """The text with # for each number: a page shows those of the whole model."""
    return re.sub(r"\d+(\.\d+)?(e[-+]\d+)?", "#", text)


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page that are in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", Path(f"docs/{page}").read_text(), re.M | re.S)
