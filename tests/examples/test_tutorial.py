"""The tutorial's commands that take long, or serve until they are stopped, are ones that the command line takes.

The others are run in `test_functions.py`.
"""

import shlex
from pathlib import Path

import click
import pytest

from halimede.cli.main import halimede
from tests.support.walkthroughs import blocks

LINES = [
    shlex.split(line)
    for block in blocks("tutorial.md", "sh")
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("halimede ")
]


def test_tutorial_serves_measures_and_tunes() -> None:
    assert [line[1] for line in LINES] == ["serve", "bench", "tune", "serve"]


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line[:3]))
def test_command_takes_the_arguments_of_the_page(line: list[str], tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    arguments = [each.replace("build/models", str(tmp_path / "models")) for each in line[2:]]
    command = halimede.get_command(click.Context(halimede), line[1])
    assert command is not None
    command.make_context(line[1], arguments)
    with pytest.raises(click.UsageError):
        command.make_context(line[1], [*arguments, "--no-such-flag=1"])


def test_code_of_the_page_is_that_of_the_example() -> None:
    [block] = blocks("tutorial.md", "python")
    assert block in Path("examples/functions/app.py").read_text()
