"""Starts the program of an instance on this machine, with its directories and its log.

That of an instance of several containers is `halimede.hosting.containers.supervisor`, which starts theirs.
"""

import pickle
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import InstanceRequest, RunningInstance
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.processes import MARK
from halimede.hosting.substrates.program import SEEN_MODELS, environment_of, isolated, unix_socket

_SUPERVISOR: tuple[str, ...] = (sys.executable, "-P", "-m", "halimede.hosting.containers.supervisor")


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


@dataclass(frozen=True, slots=True)
class Plan:
    """What the supervisor of several containers is told, as a pickle at its standard input.

    Attributes:
        request: the instance.
        place: where it runs.
        images: what runs for an image.
        variables: those of the platform.
    """

    request: InstanceRequest
    place: Place
    images: Images
    variables: Mapping[str, str]


def spawn(
    request: InstanceRequest,
    place: Place,
    images: Images,
    variables: Mapping[str, str],
    output: int | None = None,
) -> "tuple[subprocess.Popen[bytes], RunningInstance]":
    """Make an instance's directory and start its process. Blocks.

    Args:
        request: the instance.
        place: where it is to run.
        images: what runs for an image.
        variables: those of the platform.
        output: the descriptor to which it prints in place of the log.

    Raises:
        ApiError: its image resolves to nothing that could be started (``ValidationException``), or its directory
            cannot be made (``InternalFailure``).
    """
    several = bool(request.containers)
    directory, models, temporary = place.directory, place.directory / "models", place.directory / "tmp"
    if several:
        command, own = _SUPERVISOR, True
        bare = replace(request, environment={})
        environment = environment_of(bare, place.address, place.port, place.gpus, {}, own=False)
    else:
        command, own = images.command(request.image)
        environment = environment_of(request, place.address, place.port, place.gpus, variables, own=own)
    environment[MARK] = str(directory)
    seen = SEEN_MODELS
    try:
        models.mkdir(parents=True)
        temporary.mkdir()
        place.log.parent.mkdir(parents=True, exist_ok=True)
        if several:
            pass  # each of them gets its own directories
        elif place.isolates:
            command = isolated(request, models, temporary, command)
        else:
            environment["SAGEMAKER_BASE_DIR"] = str(directory)
            environment.setdefault("TMPDIR", str(temporary))
            seen = str(models)
            if request.model is not None:
                (directory / "model").symlink_to(request.model.absolute(), target_is_directory=True)
        log = place.log.open("ab")
    except OSError as error:
        msg = f"cannot make the directory of an instance: {error}"
        raise ApiError("InternalFailure", msg, 500) from None
    with log:
        try:
            # a session of its own: the terminal's signals do not reach it
            process = subprocess.Popen(  # noqa: S603 - what the user's rules say
                command,
                stdin=subprocess.PIPE if several else subprocess.DEVNULL,
                stdout=log if output is None else output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a variable with a zero byte in it
            reason = error.strerror if isinstance(error, OSError) else error
            msg = f"cannot start '{command[0]}' for the image '{request.image}': {reason}"
            raise ApiError("ValidationException", msg) from None
    if process.stdin is not None:
        with suppress(BrokenPipeError), process.stdin:  # its end is seen by whoever watches it
            process.stdin.write(pickle.dumps(Plan(request, place, images, variables)))
    running = RunningInstance(
        request, place.address, place.port, process.pid, models, seen, place.gpus,
        unix_socket(place.port) if own else "", place.node,
    )  # fmt: skip
    return process, running
