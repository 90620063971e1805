"""`halimede init`: a model repository from one file or directory, with a commented configuration."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from halimede.cli.check.command import quiet
from halimede.cli.check.examine import examine
from halimede.cli.check.findings import Examination
from halimede.cli.commented_config import commented_config
from halimede.cli.progress import progress_bars
from halimede.core.steps import step
from halimede.files.directories import LANGUAGE_MODEL, link_model
from halimede.files.targets import Target, TargetError, read_target


@click.command("init")
@click.argument("model", metavar="[NAME=]PATH")
@click.option(
    "--model-repository",
    "repository",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("models"),
    show_default=True,
    metavar="DIRECTORY",
    help="The repository; it is created if it does not exist.",
)
@click.option("--link", is_flag=True, help="Link to the model's files instead of copying them.")
def command(model: str, repository: Path, link: bool) -> None:
    """Put a model's file or directory into a model repository, with a config.pbtxt to edit.

    The command opens the model as the server would, and writes its settings with comments. You need neither to serve
    a model unchanged: `halimede serve PATH`.
    """
    try:
        target = read_target(model)
        if not isinstance(target.what, Path):
            msg = (
                f"'{model}' is a function, which needs no repository: serve it with `halimede serve {model}`"
            )
            raise click.UsageError(msg)
        _refuse_existing(repository / target.name, target)
        with progress_bars(), tempfile.TemporaryDirectory(prefix="halimede-init-") as temporary:
            linked = Path(temporary)
            kind = link_model(linked, target.name, target.what)
            if kind == "model directory":
                msg = f"'{target.what}' has the layout of a repository's model already: move it into '{repository}'"
                raise click.UsageError(msg)
            models = sorted(linked.iterdir())
            for made in models:
                _refuse_existing(repository / made.name, target)
            if len(models) == 1 and kind != LANGUAGE_MODEL:
                _only_the_file(linked / target.name, target.what)
                with quiet():
                    (examination,) = examine([linked])
                config = linked / target.name / "config.pbtxt"
                config.write_text(commented_config(examination, target.source))
            with quiet():
                checked = examine([linked])
            repository.mkdir(parents=True, exist_ok=True)
            for made in models:
                _copy(made, repository / made.name, link=link)
    except TargetError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot write '{error.filename}': {error.strerror}") from None
    click.echo(_report(checked, kind, [repository / made.name for made in models], repository))


def _refuse_existing(directory: Path, target: Target) -> None:
    if directory.exists():
        msg = f"'{directory}' is there already; give the model another name, such as other={target.source}"
        raise click.UsageError(msg)


def _only_the_file(directory: Path, path: Path) -> None:
    """Where a Python file was given, leave out what lies beside it."""
    version = directory / "1"
    if path.is_file() and version.is_symlink():
        version.unlink()
        version.mkdir()
        (version / path.name).symlink_to(path.absolute())


def _copy(model: Path, directory: Path, *, link: bool) -> None:
    """Put the model where it is to stay, with its files or with links to them."""
    size = 0 if link else _size(model)
    with step(f"Copying {model.name}", size, of_bytes=True, position=lambda: _size(directory)):
        shutil.copytree(model, directory, symlinks=link, ignore=shutil.ignore_patterns("__pycache__"))


def _size(directory: Path) -> int:
    """Bytes of the files below a directory, and of those that links in it lead to."""
    size = 0
    for place, _, names in os.walk(directory, followlinks=True):
        for name in names:
            with suppress(OSError):  # whoever copies it tells
                size += (Path(place) / name).stat().st_size
    return size


def _report(
    examinations: Sequence[Examination], kind: str, directories: Sequence[Path], repository: Path
) -> str:
    lines = []
    for directory in directories:
        lines.append(f"{directory}: {kind}" if directory is directories[0] else str(directory))
        for each in sorted(directory.rglob("*")):
            if each.is_file():
                lines.append(f"  {each.relative_to(directory)}")
    for finding in (finding for examination in examinations for finding in examination.findings):
        field = f" [{finding.field}]" if finding.field else ""
        lines.append(f"still to be done: {finding.message}{field}")
        if finding.fix:
            lines.append(f"    fix: {finding.fix}")
    lines.append(f"check it: halimede check {repository}")
    lines.append(f"serve it: halimede serve --model-repository={repository}")
    return "\n".join(lines)
