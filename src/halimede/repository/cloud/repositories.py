"""The repositories of a server, of which some are in buckets."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from halimede.core.errors import InvalidArgumentError
from halimede.repository.cloud.cache import Cache
from halimede.repository.cloud.locations import Location, Service, parse_location
from halimede.repository.cloud.mirror import Mirror
from halimede.repository.cloud.requests import Requests

DEFAULT_DIRECTORY = "~/.cache/halimede/models"
_MOUNTS = {
    Service.S3: "TRITON_AWS_MOUNT_DIRECTORY",
    Service.GCS: "TRITON_GCS_MOUNT_DIRECTORY",
    Service.AZURE: "TRITON_AZURE_MOUNT_DIRECTORY",
}


class CloudRepositories:
    """The repositories in buckets. Any thread may use it.

    Attributes:
        mirrors: what mirrors each of them.
    """

    def __init__(
        self,
        urls: Sequence[str],
        directory: str,
        limit: int | float,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Mirrors of repositories, each as the last server has left it.

        Args:
            urls: the repositories.
            directory: where models are kept; "" for where the environment says, or the user's cache.
            limit: bytes that they may take there, or the share of the disk.
            environment: the environment variables.

        Raises:
            InvalidArgumentError: a URL or credentials are malformed, or the directory cannot be used.
        """
        self._requests = Requests()
        caches: dict[Path, Cache] = {}
        self.mirrors: list[Mirror] = []
        locations = [parse_location(url) for url in urls]
        for location in {replace(each, url=""): each for each in locations}.values():
            path = _cache_directory(location, directory, environment)
            if path not in caches:
                caches[path] = Cache(path, limit)
            self.mirrors.append(Mirror(location, caches[path], self._requests))

    @property
    def directories(self) -> list[Path]:
        """What the engine sees of each."""
        return [mirror.directory for mirror in self.mirrors]

    def stop(self) -> None:
        """Have what is under way end soon, with an error."""
        self._requests.stop()

    def close(self) -> None:
        """Let other servers use what has been fetched; when nothing is under way any more. Blocks."""
        for mirror in self.mirrors:
            mirror.close()
        self._requests.close()


def _cache_directory(location: Location, chosen: str, environment: Mapping[str, str]) -> Path:
    """Where models of a repository are kept.

    Raises:
        InvalidArgumentError: nothing says so, and the user has no home.
    """
    if path := chosen or environment.get(_MOUNTS[location.service], ""):
        return Path(path).absolute()
    if path := environment.get("XDG_CACHE_HOME", ""):
        return Path(path).absolute() / "halimede" / "models"
    try:
        return Path(DEFAULT_DIRECTORY).expanduser()
    except RuntimeError:
        raise InvalidArgumentError(
            "there is no home directory to keep models of buckets in; name a directory with --cloud-cache-directory"
        ) from None
