"""The repositories of a server, of which some are in buckets."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.repository.cloud.cache import Cache, InUse
from halimede.repository.cloud.downloads import Downloads
from halimede.repository.cloud.failures import BucketError
from halimede.repository.cloud.listing import RECORDS, can_be_file
from halimede.repository.cloud.locations import Location, Service, parse_location
from halimede.repository.cloud.mirror import Mirror
from halimede.repository.cloud.requests import Requests

logger = logging.getLogger("halimede")

DEFAULT_DIRECTORY = "~/.cache/halimede/models"
_MOUNTS = {
    Service.S3: "TRITON_AWS_MOUNT_DIRECTORY",
    Service.GCS: "TRITON_GCS_MOUNT_DIRECTORY",
    Service.AZURE: "TRITON_AZURE_MOUNT_DIRECTORY",
}
_AT_A_TIME = 16


class CloudRepositories:
    """The repositories in buckets. Any thread may use it; all methods but `stop` and `used` block.

    Attributes:
        directories: what mirrors the repositories.
        lookers: threads that learn what there is.
        fetchers: threads that fetch it; looks do not wait for them.
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
        self.lookers = ThreadPoolExecutor(_AT_A_TIME, "halimede-looks")
        self.fetchers = ThreadPoolExecutor(_AT_A_TIME, "halimede-fetches")
        self._requests = Requests()
        downloads = Downloads()
        caches: dict[Path, Cache] = {}
        self._mirrors: list[Mirror] = []
        locations = [parse_location(url) for url in urls]
        for location in {replace(each, url=""): each for each in locations}.values():
            path = _cache_directory(location, directory, environment)
            if path not in caches:
                caches[path] = Cache(path, limit)
            self._mirrors.append(Mirror(location, caches[path], self._requests, downloads))
        self.directories = [mirror.directory for mirror in self._mirrors]

    def stop(self) -> None:
        """Have what is under way end soon, with an error."""
        self._requests.stop()

    def close(self) -> None:
        """Let other servers use what has been fetched; when nothing is under way any more."""
        self.lookers.shutdown()
        self.fetchers.shutdown()
        self._requests.close()
        for mirror in self._mirrors:
            mirror.close()

    def check(self) -> None:
        """Learn which models there are, and refuse what cannot be read.

        Raises:
            HalimedeError: a bucket cannot be listed, or the URL is that of a model.
        """
        for mirror in self._mirrors:
            mirror.check()

    def update_names(self) -> None:
        """Learn which models there are; where that fails, it is as it was, and the log says why."""
        self._logged(Mirror.update_names)

    def update_all(self) -> None:
        """Learn what there is of every model; where that fails, it is as it was, and the log says why."""
        self._logged(Mirror.update_all)

    def update(self, name: str, repositories: Sequence[Path]) -> None:
        """Learn what there is of a model.

        Nothing happens if no model can have that name. A bucket that cannot be listed only matters to models that are
        in none of the others.

        Args:
            name: the model.
            repositories: all repositories, mirrors or not.

        Raises:
            BucketError: a bucket cannot be listed that may have it.
        """
        if not can_be_file(name):
            return
        failed: list[tuple[Mirror, BucketError]] = []
        for mirror in self._mirrors:
            try:
                mirror.update(name)
            except BucketError as error:
                failed.append((mirror, error))
        unknown = [mirror.directory for mirror, _ in failed]
        elsewhere = any((path / name).is_dir() for path in repositories if path not in unknown)
        for mirror, failure in failed:
            if not elsewhere or (mirror.directory / name).is_dir():
                raise failure
            logger.warning("%s", failure)

    def fetch(self, directory: Path, config_name: str, config_override: str | None, in_use: InUse) -> None:
        """Fetch what is to be loaded of a model; nothing happens if it is not from a bucket, as `Mirror.fetch`."""
        for mirror in self._mirrors:
            if directory.parent == mirror.directory:
                mirror.fetch(directory.name, config_name, config_override, in_use)

    def used(self, directory: Path) -> None:
        """Note that a model has been in use until now."""
        if directory.parent in self.directories:
            try:
                os.utime(directory / RECORDS[1])
            except OSError as error:
                logger.debug("%s: %s", directory, error)

    def _logged(self, act: Callable[[Mirror], None]) -> None:
        for mirror in self._mirrors:
            try:
                act(mirror)
            except (HalimedeError, OSError) as error:
                logger.error("failed to poll model repository '%s': %s", mirror.location.url, error)


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
