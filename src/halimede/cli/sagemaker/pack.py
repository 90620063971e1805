"""`halimede pack`: the archive of a model, or of several, that SageMaker wants."""

import os
import secrets
from pathlib import Path

import click

from halimede.cli.progress import progress_bars
from halimede.cli.sagemaker.packed_models import PackedModels, find_packed_models
from halimede.cli.tables import encodable, readable
from halimede.core.errors import HalimedeError
from halimede.core.steps import step
from halimede.repository.packing import PackedEntry, list_entries, write_archive

_SUFFIX = ".tar.gz"


@click.command("pack")
@click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, readable=True, path_type=Path)
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"The archive to write.  [default: the name of DIR with {_SUFFIX}, in the current directory]",
)
@click.option(
    "--flat",
    is_flag=True,
    help="Put the contents of the model's directory at the root of the archive, without the directory itself. Only "
    "multi-model endpoints accept this.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing archive.")
def command(directory: Path, output: Path | None, flat: bool, force: bool) -> None:
    """Pack one or several models into an archive for SageMaker: model.tar.gz.

    DIR is a model directory (with config.pbtxt or numbered versions), or a directory of model directories, such as an
    ensemble and its steps. In the archive, each model has its own directory.

    If the archive has several models, a multi-model endpoint serves the top-level ensemble, or else the model with the
    name of the archive. A single-model endpoint serves the model named by SAGEMAKER_TRITON_DEFAULT_MODEL_NAME.

    The same files always give the same archive, byte for byte. Links to packed files are kept; the targets of other
    links are packed instead. Byte code, .git and temporary files of editors are excluded.
    """
    models = find_packed_models(directory, flat=flat)
    if output is None:
        output = Path(Path(os.path.abspath(directory)).name + _SUFFIX)  # noqa: PTH100 - links keep their names
    _check_output(output, directory, force)
    entry = models.entry(output.name.removesuffix(_SUFFIX))
    for remark in models.remarks:
        click.echo(f"halimede: warning: {_shown(remark)}", err=True)
    try:
        _write(list_entries(directory, models.prefix, models.only), output)
    except HalimedeError as error:
        raise click.ClickException(_shown(error.message)) from error
    except OSError as error:
        msg = f"cannot write '{output}': {error.strerror}"
        raise click.ClickException(msg) from error
    click.echo(_summary(output, models, entry))


def _check_output(output: Path, directory: Path, force: bool) -> None:
    """Refuse a file that cannot be the archive.

    Raises:
        click.UsageError: it has another suffix, is there already, lies in what is packed, or its directory is missing.
    """
    msg = ""
    if not output.name.endswith(_SUFFIX) or output.name == _SUFFIX:
        msg = f"--output: '{output}' must end in {_SUFFIX}; SageMaker takes nothing else"
    elif not output.parent.is_dir():
        msg = f"--output: there is no directory '{output.parent}'"
    elif (output.parent.resolve() / output.name).is_relative_to(directory.resolve()):
        msg = f"--output: '{output}' lies in '{directory}', which is packed; name a place outside"
    elif output.is_dir():
        msg = f"--output: '{output}' is a directory"
    elif os.path.lexists(output) and not force:
        msg = f"'{output}' is there already; --force overwrites it"
    if msg:
        raise click.UsageError(msg)


def _write(entries: list[PackedEntry], output: Path) -> None:
    """Write the archive beside its place, and put it there when it is complete."""
    size = sum(entry.size for entry in entries)
    beside = output.with_name(f".halimede-pack-{secrets.token_hex(8)}")
    try:
        with (
            progress_bars(),
            beside.open("xb") as file,
            step(f"Packing {output.name}", size, of_bytes=True) as packing,
        ):
            write_archive(entries, file, packing.advance)
        beside.replace(output)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _summary(output: Path, models: PackedModels, entry: str) -> str:
    names = sorted(models.configs)
    what = f"{len(names)} model{'s' * (len(names) != 1)}: {', '.join(names)}"
    answers = f"; requests are for {entry}" if entry and len(names) > 1 else ""
    return _shown(f"{output}: {_size(output.stat().st_size)}, {what}{answers}")


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def _shown(text: str) -> str:
    """The text as a terminal can show it, line by line."""
    return "\n".join(readable(encodable(line)) for line in text.split("\n"))
