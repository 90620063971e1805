import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import call_text_command
from tests.support.server import run_command


def complete(words: str, count: int) -> list[str]:
    """What bash is told for a line of which so many words are written."""
    environment = {
        **os.environ,
        "_HALIMEDE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(count),
    }
    result = subprocess.run(
        [sys.executable, "-m", "halimede"], env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    result = call_text_command("completion", shell)
    assert result.returncode == 0
    assert f"_HALIMEDE_COMPLETE={shell}_complete" in result.stdout


def test_another_shell_is_told_which_there_are() -> None:
    result = call_text_command("completion", "csh")
    assert result.returncode == 2
    assert "'bash', 'zsh', 'fish'" in result.stderr


def test_commands_flags_and_files_are_completed() -> None:
    assert complete("halimede in", 1) == ["plain,infer", "plain,init", "plain,invoke"]
    assert complete("halimede serve --http-po", 2) == ["plain,--http-port"]
    assert complete("halimede serve mod", 2) == ["file,mod"]
    assert complete("halimede infer digits --cl", 3) == ["plain,--classes"]


def test_bash_can_read_the_script(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(run_command("completion", "bash").stdout)
    subprocess.run(["bash", "-n", str(script)], check=True)
