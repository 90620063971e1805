import subprocess
import sys

import pytest

from halimede import __version__
from halimede.cli.main import COMMANDS, main
from tests.support.server import run_command


def status_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--version") == 0
    assert __version__ in capsys.readouterr().out


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--help") == 0
    out = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n  {name} " in out


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of() == 2
    assert "Usage: halimede" in capsys.readouterr().err


def test_help_of_a_command_goes_by_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("serve", "--help") == 0
    assert "Usage: halimede serve" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("server", " Did you mean 'serve'?"),
        ("srve", " Did you mean 'serve'?"),
        ("buildengine", " Did you mean 'build-engine'?"),
        ("xyz", ""),
    ],
)
def test_an_unknown_command_names_the_nearest_and_all(
    command: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(command) == 2
    error = capsys.readouterr().err
    assert error == f"halimede: No such command '{command}'.{hint} The commands are {', '.join(COMMANDS)}.\n"


def test_a_missing_repository_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("serve") == 2
    assert (
        capsys.readouterr().err
        == "halimede: --model-repository must be specified: name a directory of models\n"
    )


def test_serve_tells_the_version_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("serve", "--version") == 0
    assert capsys.readouterr().out == f"halimede, version {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nothing"],
        ["serve", "models"],
        ["serve", "--nothing"],
        ["serve", "--http-port=x"],
        ["check"],
        ["check", "--nothing"],
        ["pack", "--nothing"],
        ["models", "--nothing"],
        ["build-engine"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("halimede: ")
    assert error.count("\n") == 1


def test_the_module_is_the_command() -> None:
    result = run_command("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert __version__ in result.stdout


def test_the_command_line_is_read_before_anything_heavy_is_imported() -> None:
    script = (
        "import sys, halimede.cli.main, halimede.cli.serve\n"
        "print([name for name in ('numpy', 'onnxruntime', 'google.protobuf', 'uvloop') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
