"""The newcomer's page: its files are written, its commands run and their output compared, in the page's order."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.server import ServerProcess, start_server

pytest.importorskip("skl2onnx", reason="needs skl2onnx: pip install 'halimede[walkthroughs]'")
pytest.importorskip("xgboost", reason="needs XGBoost: pip install 'halimede[walkthroughs]'")

pytestmark = pytest.mark.timeout(300)

# the last section shows lines of a log, with the times of the day
PAGE = (ROOT / "docs/first-day.md").read_text().partition("\n## See the requests\n")[0]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"`([\w/]+\.\w+)`:\n\n\Z")
NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?")


class Reader:
    """Somebody who does what the page says, in an empty directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._server: ServerProcess | None = None
        self.commands = 0

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, path: str, text: str) -> None:
        """Write a file of the page."""
        file = self._directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def serve(self, line: str) -> None:
        """Start the server, or start it again."""
        self._stack.close()
        flags = line.split()
        assert flags[:4] == ["halimede", "serve", "--model-repository", "models"]
        self._server = self._stack.enter_context(start_server(self._directory / "models", *flags[4:]))

    def run(self, line: str) -> str:
        """What a command prints."""
        self.commands += 1
        if self._server is not None:
            line = line.replace("localhost:8000", self._server.http)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._directory, env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.stdout.replace(str(self._directory), "/home/me").rstrip("\n")


def blocks() -> Iterator[tuple[str, str, str]]:
    """The page's blocks: the file that the text before it names, or "", its language and its text."""
    end = 0
    for block in BLOCK.finditer(PAGE):
        named = FILE.search(PAGE[end : block.start()])
        yield named[1] if named else "", block[1], block[2]
        end = block.end()


def same(printed: str, shown: str) -> bool:
    """They are equal, and their fractions nearly so: processors differ in how they round."""
    numbers = [[float(each) for each in NUMBER.findall(text)] for text in (printed, shown)]
    return NUMBER.sub("#", printed) == NUMBER.sub("#", shown) and numbers[0] == pytest.approx(
        numbers[1], rel=1e-3, abs=1e-6
    )


def test_reader_of_the_page_sees_what_it_shows(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for file, language, text in blocks():
            if file:
                reader.write(file, text)
            elif language == "sh" and text.startswith("halimede serve"):
                reader.serve(text)
            elif language == "console":
                for entry in re.split(r"^\$ ", text, flags=re.M)[1:]:
                    line, _, shown = entry.partition("\n")
                    printed = reader.run(line)
                    assert same(printed, shown.rstrip("\n")), f"$ {line}\n{printed}"

        assert reader.commands > 10
