"""What an instance leaves in its directory, for the next process of the host to find."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from halimede.hosting.substrates.base import ContainerRequest, InstanceRequest, Resources, RunningInstance

_NAME = "instance.json"


@dataclass(frozen=True, slots=True)
class InstanceFile:
    """An instance that has been started.

    Attributes:
        running: what is known of it.
        began: when its process was started, in the kernel's ticks.
        gpus: which of the GPUs that the host may use it has, from 0.
    """

    running: RunningInstance
    began: int
    gpus: list[int]

    def write(self, directory: Path) -> None:
        """Write it whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        beside = directory / f"{_NAME}.new"
        beside.write_bytes(orjson.dumps(asdict(self), default=str))
        beside.rename(directory / _NAME)


def remove_instance_file(directory: Path) -> None:
    """Have no later process of the host take the instance over, as it is about to be told to end."""
    (directory / _NAME).unlink(missing_ok=True)


def read_instance_file(directory: Path) -> InstanceFile | None:
    """What lies in an instance's directory; None for an instance that was being started or ended.

    Raises:
        ValueError: it cannot be read, or is not that of this directory's instance.
    """
    if not (directory / _NAME).exists():
        return None
    try:
        document = orjson.loads((directory / _NAME).read_bytes())
        found = InstanceFile(_running(document["running"]), int(document["began"]), list(document["gpus"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{directory} holds no instance: {error}") from None
    if found.running.request.id != directory.name:
        raise ValueError(f"{directory} holds the instance {found.running.request.id}")
    return found


def _running(document: dict[str, Any]) -> RunningInstance:
    request = document["request"]
    request["resources"] = Resources(**request["resources"])
    for one in (request, *request.get("containers", ())):
        one["model"] = None if one["model"] is None else Path(one["model"])
    request["containers"] = tuple(ContainerRequest(**one) for one in request.get("containers", ()))
    document = {**document, "request": InstanceRequest(**request), "models": Path(document["models"])}
    return RunningInstance(**document)
