"""How an instance's program is started: its variables, and directories of its own where that is allowed."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from halimede.core.gpus import VISIBLE, listed_entries
from halimede.hosting.substrates.base import InstanceRequest

HOST = "127.0.0.1"
"""Where instances listen."""

_ML = "/opt/ml"
"""Where containers find their models."""

SEEN_MODELS = f"{_ML}/models"
"""Where an instance with directories of its own sees its models."""

_TMP = Path("/tmp")  # noqa: S108 - each instance has its own

_LAUNCHER = (sys.executable, "-m", "halimede.hosting.substrates.launcher")
_INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "PYTHONPATH",
)
"""Variables of the host that instances get; none of them holds a secret."""

_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
"""Variables that say who somebody is, of which one is worth nothing without the others."""


def can_isolate() -> bool:
    """Whether programs can be given directories of their own here. Blocks for a moment."""
    command = _launched({"empty": _ML, "mounts": {}, "kept": [], "shm_bytes": 1 << 20, "command": []})
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - our own


def isolated(
    request: InstanceRequest, models: Path, temporary: Path, command: Sequence[str]
) -> tuple[str, ...]:
    """The command that starts a program with directories of its own.

    Args:
        request: the instance.
        models: what it sees as its models.
        temporary: what it sees as `/tmp`.
        command: the program and its arguments.
    """
    mounts = {str(_TMP): str(temporary)} if _TMP.is_dir() else {}
    if request.multi_model:
        mounts[SEEN_MODELS] = str(models)
    if request.model is not None:
        mounts[f"{_ML}/model"] = str(request.model.absolute())
    shm_bytes = request.resources.memory_bytes // 2
    kept = _kept([str(temporary), *command])
    return _launched(
        {"empty": _ML, "mounts": mounts, "kept": kept, "shm_bytes": shm_bytes, "command": command}
    )


def _kept(words: Sequence[str]) -> list[str]:
    """What is in `/tmp` and is a part of the program: Python, its packages, and what command and variables name."""
    named = [path for name in _INHERITED for path in os.environ.get(name, "").split(os.pathsep)]
    paths = map(Path, (*words, *named, *sys.path, sys.executable, sys.prefix, sys.base_prefix))
    within = {_TMP / path.relative_to(_TMP).parts[0] for path in paths if _TMP in path.parents}
    return sorted(str(path) for path in within if path.exists())


def _launched(plan: dict[str, Any]) -> tuple[str, ...]:
    return (*_LAUNCHER, orjson.dumps(plan).decode())


def environment_of(
    request: InstanceRequest,
    address: str,
    port: int,
    gpus: Sequence[int],
    variables: Mapping[str, str],
    *,
    own: bool,
) -> dict[str, str]:
    """The variables of an instance.

    Args:
        request: the instance.
        address: where it is to listen.
        port: where it is to listen.
        gpus: which of the GPUs that the host may use it has, from 0.
        variables: those of the platform; the container's own take their places, and its credentials those of all.
        own: its program is this package's server.
    """
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    listed = os.environ.get(VISIBLE)
    names = [str(gpu) for gpu in gpus] if listed is None else [listed_entries(listed)[gpu] for gpu in gpus]
    environment[VISIBLE] = ",".join(names)
    if own:
        environment["SAGEMAKER_TRITON_LOG_VERBOSE"] = "false"
    theirs = any(name in request.environment for name in _CREDENTIALS)
    environment |= {
        name: value for name, value in variables.items() if not theirs or name not in _CREDENTIALS
    }
    environment |= request.environment
    environment["SAGEMAKER_BIND_TO_PORT"] = str(port)
    if request.multi_model:
        environment["SAGEMAKER_MULTI_MODEL"] = "true"
    if own:
        flags = f"--sagemaker-address={address} --sagemaker-unix-socket={unix_socket(port)}"
        further = request.environment.get("SAGEMAKER_TRITON_ADDITIONAL_ARGS", "")
        environment["SAGEMAKER_TRITON_ADDITIONAL_ARGS"] = f"{flags} {further}".strip()
    return environment


def unix_socket(port: int) -> str:
    """Where an instance of this package's server listens besides its port."""
    return f"@halimede-instance-{port}"
