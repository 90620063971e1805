"""`halimede check`: every problem of every model of some repositories, without starting a server."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import orjson

from halimede.backends.registry import backend_name
from halimede.cli.check.checks import model_instead
from halimede.cli.check.examine import AGENT_DIRECTORY, IMPORT_TIMEOUT_S, examine
from halimede.cli.check.findings import Examination, Finding
from halimede.cli.check.rate_limits import resource_limits
from halimede.cli.progress import progress_bars
from halimede.cli.tables import encodable, readable, table
from halimede.config.signature import Signature, TensorSpec
from halimede.core.errors import HalimedeError
from halimede.repository.cloud.locations import is_bucket_url
from halimede.repository.layout import check_repositories


class _Repository(click.Path):
    """A directory of models."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_bucket_url(value):
            self.fail(
                f"'{value}' is in a bucket, and only directories are checked; copy it to one first",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


@click.command("check")
@click.argument(
    "repositories", metavar="REPOSITORY...", nargs=-1, required=True, type=_Repository(path_type=Path)
)
@click.option(
    "--model-config-name", default="", metavar="NAME", help="Use configs/NAME.pbtxt for models that have it."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the output.",
)
@click.option(
    "--import-timeout",
    type=click.FloatRange(min=0),
    default=IMPORT_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time for the import of a Python model; 0: do not run models' code.",
)
@click.option(
    "--rate-limit-resource",
    "resources",
    multiple=True,
    metavar="NAME:COUNT[:DEVICE]",
    help="Amount of a rate limiter resource, as for `serve`. Repeatable.",
)
@click.option(
    "--repoagent-directory",
    type=click.Path(path_type=Path),
    default=AGENT_DIRECTORY,
    show_default=True,
    metavar="DIRECTORY",
    help="Directory of repository agents, as for `serve`.",
)
@click.option(
    "--model-namespacing",
    is_flag=True,
    help="Allow models of the same name in several repositories, as for `serve`.",
)
@click.pass_context
def command(
    context: click.Context,
    repositories: tuple[Path, ...],
    model_config_name: str,
    form: str,
    import_timeout: float,
    resources: tuple[str, ...],
    repoagent_directory: Path,
    model_namespacing: bool,
) -> None:
    """Report all problems of all models, with file, line and suggested fix.

    Python models are imported, each in a separate process. The exit status is 1 if there are problems. Valid settings
    without the expected effect are reported as warnings.
    """
    try:
        check_repositories(repositories)
    except HalimedeError as error:
        raise click.UsageError(error.message) from error
    for repository in repositories:
        if message := model_instead(repository):
            raise click.UsageError(message)
    limits = resource_limits(resources)
    with quiet(), progress_bars():
        examinations = examine(
            repositories,
            model_config_name,
            import_timeout,
            limits,
            repoagent_directory,
            namespaced=model_namespacing,
        )
    click.echo(_json(examinations) if form == "json" else _text(examinations))
    if any(examination.findings for examination in examinations):
        context.exit(1)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the log to errors: what it would warn of is either told here, or no problem."""
    logger = logging.getLogger("halimede")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _text(examinations: Sequence[Examination]) -> str:
    findings = [finding for examination in examinations for finding in examination.findings]
    warnings = [finding for examination in examinations for finding in examination.warnings]
    lines = [line for finding in findings for line in _lines(finding)]
    lines += [line for finding in warnings for line in _lines(finding, "warning: ")]
    models = _counted(len(examinations), "model")
    if findings:
        wrong = sum(bool(examination.findings) for examination in examinations)
        summary = f"{_counted(len(findings), 'problem')} in {wrong} of {models}"
    else:
        if examinations:
            lines.append(_table(examinations))
        summary = f"{models}, no problems"
    if warnings:
        summary += f", {_counted(len(warnings), 'warning')}"
    return "\n".join([*lines, summary])


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _lines(finding: Finding, kind: str = "") -> list[str]:
    place = f"{finding.file}:{finding.line}" if finding.line else str(finding.file)
    about = f" [{finding.field}]" if finding.field else ""
    lines = [f"{place}: {kind}{finding.message}{about}"]
    if finding.fix:
        lines.append(f"    fix: {finding.fix}")
    return [readable(encodable(part)) for line in lines for part in line.replace("\n", "\n    ").split("\n")]


def _table(examinations: Sequence[Examination]) -> str:
    rows = []
    for examination in examinations:
        config = examination.config
        signature = Signature.from_config(config)
        rows.append(
            [
                encodable(examination.name),
                backend_name(config),
                ", ".join(map(str, examination.versions)),
                str(config.max_batch_size),
                "\n".join(_tensor(signature, spec) for spec in signature.inputs.values()),
                "\n".join(_tensor(signature, spec) for spec in signature.outputs.values()),
            ]
        )
    return table(["Model", "Backend", "Versions", "Max batch", "Inputs", "Outputs"], rows)


def _tensor(signature: Signature, spec: TensorSpec) -> str:
    return f"{spec.name} {spec.datatype.name}{signature.full_dims(spec)}"


def _json(examinations: Sequence[Examination]) -> str:
    document = {
        "models": [_model(examination) for examination in examinations],
        "problems": [_finding(each) for examination in examinations for each in examination.findings],
        "warnings": [_finding(each) for examination in examinations for each in examination.warnings],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "model": encodable(finding.model),
        "file": encodable(str(finding.file)),
        "line": finding.line or None,
        "field": finding.field,
        "message": encodable(finding.message),
        "fix": encodable(finding.fix),
    }


def _model(examination: Examination) -> dict[str, Any]:
    """What a model is; its tensors only if nothing is wrong with it."""
    signature = None if examination.findings else Signature.from_config(examination.config)
    tensors = {
        side: [
            {"name": spec.name, "datatype": spec.datatype.name, "shape": signature.full_dims(spec)}
            for spec in specs.values()
        ]
        for side, specs in (("inputs", signature.inputs), ("outputs", signature.outputs))
    } if signature else {}  # fmt: skip
    return {
        "name": encodable(examination.name),
        "directory": encodable(str(examination.directory)),
        "backend": backend_name(examination.config),
        "versions": examination.versions,
        "max_batch_size": examination.config.max_batch_size,
        "problems": len(examination.findings),
        **tensors,
    }
