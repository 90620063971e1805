"""`halimede build-engine`: a model made ready for the machine at hand, by TensorRT or by PyTorch's AOTInductor."""

import logging
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from halimede.cli.engine_shapes import Shapes, parse_shapes, profiles_of
from halimede.cli.progress import TerminalHandler, progress_bars
from halimede.cli.tables import encodable, readable
from halimede.core.errors import HalimedeError
from halimede.core.steps import step

TENSORRT = "tensorrt"
AOTI = "aoti"
_INSTALL = {"tensorrt": "tensorrt", "tensorrt_bindings": "tensorrt", "cuda": "tensorrt", "torch": "pytorch"}
"""Module → the extra that brings it."""


class _ShapesType(click.ParamType[Shapes]):
    """Shapes of inputs."""

    name = "shapes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shapes:
        try:
            return parse_shapes(value)
        except ValueError as error:
            flag = param.opts[0] if param is not None else "shapes"
            msg = f"{flag}: {error}"
            raise click.UsageError(msg, ctx) from None


_SHAPES = "NAME:1x3x224x224,..."
_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("build-engine")
@click.option(
    "--format",
    "form",
    type=click.Choice([TENSORRT, AOTI]),
    default=TENSORRT,
    show_default=True,
    help="What to build: a TensorRT engine from an ONNX file, or a package from a torch.export.save program.",
)
@click.option("--onnx", type=_FILE, metavar="FILE", help="TensorRT: the model.")
@click.option("--program", type=_FILE, metavar="FILE", help="aoti: the program.")
@click.option(
    "--save-engine",
    "--saveEngine",
    "output",
    type=_NEW_FILE,
    required=True,
    metavar="FILE",
    help="Output file: models/NAME/1/model.plan, or model.pt2 for aoti. An existing file is replaced.",
)
@click.option(
    "--min-shapes",
    "--minShapes",
    type=_ShapesType(),
    multiple=True,
    metavar=_SHAPES,
    help="Minimum shapes of inputs.",
)
@click.option(
    "--opt-shapes",
    "--optShapes",
    type=_ShapesType(),
    multiple=True,
    metavar=_SHAPES,
    help="Shapes to optimize for.",
)
@click.option(
    "--max-shapes",
    "--maxShapes",
    type=_ShapesType(),
    multiple=True,
    metavar=_SHAPES,
    help="Maximum shapes of inputs.",
)
@click.option("--fp16", is_flag=True, help="Allow layers to compute in FP16.")
@click.option("--bf16", is_flag=True, help="Allow layers to compute in BF16.")
@click.option("--int8", is_flag=True, help="Allow layers to compute in INT8, for models with Q/DQ nodes.")
@click.option(
    "--workspace",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Memory that a layer may use while it runs.  [default: the GPU's]",
)
@click.option(
    "--timing-cache",
    "--timingCacheFile",
    type=_NEW_FILE,
    metavar="FILE",
    help="Cache of build measurements; read if it exists, and written.",
)
@click.option(
    "--optimization-level",
    "--builderOptimizationLevel",
    type=click.IntRange(0, 5),
    metavar="0-5",
    help="From fast builds (0) to fast engines (5).  [default: TensorRT's, 3]",
)
@click.option(
    "--version-compatible",
    "--versionCompatible",
    is_flag=True,
    help="Build an engine that also runs in later TensorRT versions, with "
    "--backend-config=tensorrt,version-compatible=true.",
)
@click.option(
    "--device",
    default="",
    metavar="DEVICE",
    help="The GPU's number; for aoti cpu, or cuda:NUMBER.  [default: the first GPU; for aoti without one, cpu]",
)
@click.option("--verbose", is_flag=True, help="Show TensorRT's messages.")
@click.pass_context
def command(context: click.Context, /, form: str, output: Path, verbose: bool, **options: Any) -> None:
    """Build an engine from a model for the GPU of this machine.

    Options have the same names as those of trtexec, whose spellings (--minShapes) are accepted too. For several
    optimization profiles, repeat --min-shapes, --opt-shapes and --max-shapes: the first of each define profile 0.

    With --format=aoti the result is a package of machine code that the backend pytorch serves, with no need of
    TensorRT; on a machine without a GPU, it is for CPUs.
    """
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s", handlers=[TerminalHandler()])
    if not output.parent.is_dir():
        msg = f"--save-engine: there is no directory '{output.parent}'"
        raise click.UsageError(msg)
    _check_flags(context, form)
    began = time.monotonic()
    try:
        with progress_bars(shown=not verbose), step(f"Building {output.name}"):
            made = _build_package(output, options) if form == AOTI else _build_engine(output, options)
    except HalimedeError as error:
        raise click.ClickException(_shown(error.message)) from error
    except OSError as error:
        msg = f"cannot write '{error.filename or output}': {error.strerror}"
        raise click.ClickException(msg) from error
    except ModuleNotFoundError as error:
        extra = _INSTALL.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        msg = f'{error.name} is not installed; install it with: pip install "halimede[{extra}]"'
        raise click.ClickException(msg) from error
    size = output.stat().st_size / 1e6
    click.echo(_shown(f"{output}: {size:.1f} MB, {made}, in {time.monotonic() - began:.1f} s"))


def _check_flags(context: click.Context, form: str) -> None:
    """Refuse flags that say nothing to the format, and a missing input.

    Raises:
        click.UsageError: the text names the flag.
    """
    common = {"form", "output", "device", "verbose"}
    own = {AOTI: {"program"}}.get(form, {each.name for each in context.command.params} - {"program"})
    needed = "program" if form == AOTI else "onnx"
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name not in common | own:
            msg = f"{parameter.opts[0]} is not for --format={form}"
            raise click.UsageError(msg)
        if parameter.name == needed and not given:
            msg = f"--format={form} needs {parameter.opts[0]}"
            raise click.UsageError(msg)


def _build_engine(output: Path, options: dict[str, Any]) -> str:
    device = options["device"] or "0"
    if not device.removeprefix("cuda:").isdecimal():
        msg = f"--device: '{device}' is not the number of a GPU"
        raise click.UsageError(msg)
    try:
        profiles = profiles_of(options["min_shapes"], options["opt_shapes"], options["max_shapes"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None

    from halimede.backends.tensorrt.builder import BuildSettings, build
    from halimede.backends.tensorrt.cuda_runtime import CudaRuntime

    cache: Path | None = options["timing_cache"]
    settings = BuildSettings(
        profiles,
        precisions=[name.upper() for name in ("fp16", "bf16", "int8") if options[name]],
        workspace_mib=options["workspace"],
        optimization_level=options["optimization_level"],
        version_compatible=options["version_compatible"],
        timing_cache=cache.read_bytes() if cache is not None and cache.is_file() else b"",
    )
    CudaRuntime().use_device(int(device.removeprefix("cuda:")))
    built = build(options["onnx"], settings)
    if cache is not None:
        _write(cache, built.timing_cache)
    _write(output, built.plan)
    return f"engine with {_counted(profiles)} for GPU {device}"


def _counted(profiles: Sequence[Any]) -> str:
    count = max(1, len(profiles))
    return f"{count} optimization profile{'s' * (count != 1)}"


def _build_package(output: Path, options: dict[str, Any]) -> str:
    from halimede.backends.pytorch.aoti_builder import build_package

    return f"package for {build_package(options['program'], output, options['device'])}"


def _write(path: Path, data: bytes) -> None:
    """Write the file beside its place, and put it there when it is complete."""
    beside = path.with_name(f".halimede-build-{secrets.token_hex(8)}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _shown(text: str) -> str:
    """The text as a terminal can show it."""
    return readable(encodable(text))
