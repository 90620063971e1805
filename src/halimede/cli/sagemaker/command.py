"""`halimede sagemaker-serve`, what a SageMaker container runs: `halimede serve` with what the environment says.

The platform starts `docker run IMAGE serve`, a script of the image that starts this command, and says the rest in
environment variables and by what it has put below `/opt/ml`. Those become flags here; the server then runs in this
process, which gets the platform's signals itself.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from halimede import __version__
from halimede.cli import serve
from halimede.cli.flags import serve_command
from halimede.cli.options import ServeOptions
from halimede.cli.progress import progress_bars
from halimede.cli.sagemaker.environment import (
    ADDITIONAL_ARGS,
    BASE_DIR,
    DEFAULT_MODEL_NAME,
    DISABLE_MODEL_NAMESPACING,
    INFERENCE_TYPE,
    MODEL_LOAD_GPU_LIMIT,
    MULTI_MODEL,
    OVERRIDE_PING_MODE,
    PING_MODE,
    Environment,
    read_environment,
)
from halimede.cli.sagemaker.language_options import CONFIGURING
from halimede.core.gpus import visible_gpus

_FLAGS = (
    "--allow-sagemaker=true",
    "--allow-http=false",
    "--allow-grpc=false",
    "--allow-metrics=false",
    "--model-control-mode=explicit",
    "--backend-config=python,requirement-sources=configured",
)
"""What holds unless a variable says otherwise: of a flag that is given twice, the last one counts."""

_TERMINATED = 128 + signal.SIGTERM


@dataclass(slots=True)
class Plan:
    """A server to start.

    Attributes:
        what: what it serves, in a few words.
        flags: its flags.
        environment: variables that it reads itself.
        remarks: what to warn of.
    """

    what: str
    flags: list[str]
    environment: dict[str, str]
    remarks: list[str] = field(default_factory=list)


def plan(variables: Mapping[str, str], scratch: Callable[[], Path], gpus: int = 0) -> Plan:
    """The server that the variables ask for.

    Args:
        variables: the process's environment.
        scratch: makes an empty directory that lives as long as the server.
        gpus: how many GPUs there are.

    Raises:
        click.UsageError: a value is none for its variable, or there is no model to serve.
    """
    environment = read_environment(variables)
    try:
        return _plan(environment, scratch, gpus)
    except click.UsageError:
        # the name that was mistyped may be why
        for remark in environment.remarks:
            click.echo(f"halimede: warning: {remark}", err=True)
        raise


def _plan(environment: Environment, scratch: Callable[[], Path], gpus: int) -> Plan:
    values = environment.values
    multi_model = values.get(MULTI_MODEL) == "true"
    ping = values.get(OVERRIDE_PING_MODE) or values.get(PING_MODE) or ("live" if multi_model else "ready")
    planned = Plan(
        what="",
        flags=[*_FLAGS],
        environment={PING_MODE: ping, INFERENCE_TYPE: values.get(INFERENCE_TYPE, "infer")},
        remarks=list(environment.remarks),
    )
    base = Path(values.get(BASE_DIR, "/opt/ml")).absolute()
    if multi_model:
        _serve_many(planned, base, values, scratch)
        planned.remarks += _no_effect(environment, "Models of a multi-model endpoint have configurations.")
    else:
        _serve_one(planned, base, environment, scratch, gpus)
    planned.what += f"; /ping tells whether the server is {ping}"
    planned.flags += environment.flags()
    if MODEL_LOAD_GPU_LIMIT in values:
        planned.flags += [
            f"--model-load-gpu-limit={gpu}:{values[MODEL_LOAD_GPU_LIMIT]}" for gpu in range(gpus)
        ]
        if not gpus:
            planned.remarks.append(f"{MODEL_LOAD_GPU_LIMIT} has no effect here. There is no GPU.")
    planned.flags += values.get(ADDITIONAL_ARGS, ())
    return planned


def _serve_many(planned: Plan, base: Path, values: Mapping[str, Any], scratch: Callable[[], Path]) -> None:
    """Plan a server of models that the platform will load."""
    planned.what = f"many models, from below {base / 'models'}"
    # each model that is loaded brings its own repository; the server wants one at start
    planned.flags += [
        f"--model-repository={scratch()}",
        f"--sagemaker-model-directory={base / 'models'}",
    ]
    if DEFAULT_MODEL_NAME in values:
        planned.remarks.append(
            f"{DEFAULT_MODEL_NAME} has no effect here. In multi-model mode the platform loads the models."
        )
    if values.get(DISABLE_MODEL_NAMESPACING) is False:
        planned.remarks.append(
            f"{DISABLE_MODEL_NAMESPACING} is false, which would give equal names of different archives up in Triton's "
            "container; they stay apart here"
        )


def _serve_one(
    planned: Plan, base: Path, environment: Environment, scratch: Callable[[], Path], gpus: int
) -> None:
    """Plan a server of the one model that the platform has put there.

    Raises:
        click.UsageError: it is not there, or it cannot be told which one it is.
    """
    values = environment.values
    if MULTI_MODEL in values and values[MULTI_MODEL].lower() != "false":
        planned.remarks.append(
            f"{MULTI_MODEL} is '{values[MULTI_MODEL]}': serving a single model, since only 'true' asks for many"
        )
    # configurations are read in C; a wrong variable is told before that is imported
    from halimede.cli.sagemaker.models import find_single_model
    from halimede.cli.sagemaker.pretrained import NAME, find_pretrained

    place = base / "model"
    try:
        pretrained = find_pretrained(place, environment.texts, scratch, gpus)
        if pretrained is not None:
            planned.what = f"one model, pretrained, of {pretrained.directory}"
            planned.remarks += pretrained.remarks
            planned.environment |= {**pretrained.environment, DEFAULT_MODEL_NAME: NAME}
            planned.flags += [f"--model-repository={pretrained.repository}", f"--load-model={NAME}"]
            return
        model = find_single_model(place, values.get(DEFAULT_MODEL_NAME, ""), scratch)
    except OSError as error:
        msg = f"'{error.filename}' cannot be read: {error.strerror}"
        raise click.UsageError(msg) from None
    planned.remarks += _no_effect(environment, "The model has a configuration.")
    if model.remark:
        planned.remarks.append(model.remark)
    planned.what = f"one model, '{model.name}' of {place}"
    planned.flags += [f"--model-repository={model.repository}", f"--load-model={model.name}"]
    planned.environment[DEFAULT_MODEL_NAME] = model.name


def _no_effect(environment: Environment, why: str) -> list[str]:
    """Remarks on variables of pretrained models."""
    return [f"{name} has no effect here. {why}" for name in environment.texts if name in CONFIGURING]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="halimede")
def command() -> int:
    """Serve as SageMaker's Triton container does.

    There are no flags: environment variables configure the server. The models are below /opt/ml, or below
    SAGEMAKER_BASE_DIR. This command starts `halimede serve`.
    """
    # The first process of a container has no default action for signals, and there may be something to tidy up.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_TERMINATED))
    with ExitStack() as stack:
        with progress_bars():
            planned = plan(os.environ, partial(_scratch, stack), len(visible_gpus()))
        os.environ.update(planned.environment)

        def run(options: ServeOptions, remarks: list[str]) -> int:
            announcement = f"SageMaker at port {options.sagemaker_port}: {planned.what}"
            return serve.run(options, [*planned.remarks, *remarks], announcement)

        status = serve_command(run).main(planned.flags, prog_name="halimede serve", standalone_mode=False)
        return status if isinstance(status, int) else 0


def _scratch(stack: ExitStack) -> Path:
    """An empty directory that is removed when the stack is left.

    Raises:
        click.ClickException: there is no place for one.
    """
    try:
        directory = tempfile.TemporaryDirectory(prefix="halimede-", ignore_cleanup_errors=True)
    except OSError as error:
        msg = (
            f"cannot make a temporary directory: {error.strerror}; TMPDIR may name a directory to make it in"
        )
        raise click.ClickException(msg) from None
    return Path(stack.enter_context(directory))
