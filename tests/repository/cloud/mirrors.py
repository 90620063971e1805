"""Mirrors for tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from halimede.config.override import ConfigOverride
from halimede.repository.cloud.cache import Cache
from halimede.repository.cloud.locations import parse_location
from halimede.repository.cloud.mirror import Mirror
from halimede.repository.cloud.requests import Requests

IDENTITY = """backend: "identity"
input [{ name: "X", data_type: TYPE_FP32, dims: [-1] }]
output [{ name: "Y", data_type: TYPE_FP32, dims: [-1] }]
"""
ALL = "version_policy: { all {} }\n"


def nothing(_directory: Path) -> bool:
    """No model is in use."""
    return False


@contextmanager
def mirror(url: str, directory: Path, limit: int | float = 1.0) -> Iterator[Mirror]:
    """A mirror as a server has it, as long as the block lasts."""
    requests = Requests()
    found = Mirror(parse_location(url), Cache(directory, limit), requests)
    try:
        yield found
    finally:
        requests.stop()
        requests.close()
        found.close()


def fetch(
    found: Mirror,
    name: str,
    config_name: str = "",
    override: ConfigOverride | None = None,
    in_use: Callable[[Path], bool] = nothing,
) -> Path:
    """Look at a model and fetch what is to be loaded: its directory."""
    found.update(name)
    found.fetch(name, config_name, override, in_use)
    return found.directory / name


def files(directory: Path) -> dict[str, bytes]:
    """What a model's directory holds, notes and empty directories aside."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(".halimede-")
    }
