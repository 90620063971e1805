"""Starts the program of an instance on this machine, with its directories and its log."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import InstanceRequest, RunningInstance
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.processes import MARK
from halimede.hosting.substrates.program import SEEN_MODELS, environment_of, isolated, unix_socket


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance is to run.

    Attributes:
        directory: its own; whatever comes from the instance is marked with it.
        log: the file of what it prints.
        address: where it is to listen.
        port: where it is to listen.
        gpus: which of the GPUs that this process may use it has, from 0.
        isolates: it can be given directories of its own (`program.can_isolate`).
        node: which machine this is; "" if there is only this one.
    """

    directory: Path
    log: Path
    address: str
    port: int
    gpus: list[int]
    isolates: bool
    node: str = ""


def spawn(
    request: InstanceRequest, place: Place, images: Images, variables: Mapping[str, str]
) -> "tuple[subprocess.Popen[bytes], RunningInstance]":
    """Make an instance's directory and start its process. Blocks.

    Args:
        request: the instance.
        place: where it is to run.
        images: what runs for an image.
        variables: those of the platform.

    Raises:
        ApiError: its image resolves to nothing that could be started (``ValidationException``), or its directory
            cannot be made (``InternalFailure``).
    """
    command, own = images.command(request.image)
    directory, models = place.directory, place.directory / "models"
    environment = environment_of(request, place.address, place.port, place.gpus, variables, own=own)
    environment[MARK] = str(directory)
    seen = SEEN_MODELS
    try:
        models.mkdir(parents=True)
        place.log.parent.mkdir(parents=True, exist_ok=True)
        if place.isolates:
            command = isolated(request, models, command)
        else:
            environment["SAGEMAKER_BASE_DIR"] = str(directory)
            seen = str(models)
            if request.model is not None:
                (directory / "model").symlink_to(request.model.absolute(), target_is_directory=True)
        output = place.log.open("ab")
    except OSError as error:
        msg = f"cannot make the directory of an instance: {error}"
        raise ApiError("InternalFailure", msg, 500) from None
    with output:
        try:
            # a session of its own: the terminal's signals do not reach it
            process = subprocess.Popen(  # noqa: S603 - what the user's rules say
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a variable with a zero byte in it
            reason = error.strerror if isinstance(error, OSError) else error
            msg = f"cannot start '{command[0]}' for the image '{request.image}': {reason}"
            raise ApiError("ValidationException", msg) from None
    running = RunningInstance(
        request, place.address, place.port, process.pid, models, seen, place.gpus,
        unix_socket(place.port) if own else "", place.node,
    )  # fmt: skip
    return process, running
