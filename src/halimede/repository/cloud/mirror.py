"""A repository of a bucket on disk: its models are directories, and what is to be loaded of them is fetched.

The directory of a model that nobody has loaded yet holds only the note of what the bucket has. What is fetched is
put in its place when all of it is there, so that a fetch that fails changes nothing.
"""

import logging
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import obstore

from halimede.config.model_config_pb2 import ModelConfig, ModelVersionPolicy
from halimede.config.override import ConfigOverride
from halimede.config.parse import read_config
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.core.steps import step
from halimede.core.versions import version_number
from halimede.repository.cloud.cache import Cache, InUse
from halimede.repository.cloud.downloads import Download, Downloads, disk_full
from halimede.repository.cloud.failures import AwayError, ReplacedError, failure
from halimede.repository.cloud.fetched import Fetched
from halimede.repository.cloud.listing import RECORDS, BucketObject, Listing, check_key, group_by_model
from halimede.repository.cloud.locations import Location, credentials_advice
from halimede.repository.cloud.progress import Progress
from halimede.repository.cloud.requests import Requests
from halimede.repository.cloud.stores import open_store
from halimede.repository.versions import select_versions

T = TypeVar("T")

logger = logging.getLogger("halimede")

_AT_A_TIME = 16
_FAILURES = (obstore.exceptions.BaseError, OSError, ValueError)


class Mirror:
    """A repository of a bucket. Any thread may use it; all methods block.

    Attributes:
        location: the repository.
        directory: its models.
        listers: threads that learn what there is.
        fetchers: threads that fetch it; looks do not wait for them.
        away: why the bucket did not answer when it was asked last; None if it did.
    """

    def __init__(self, location: Location, cache: Cache, requests: Requests) -> None:
        """A mirror that shows what was there when the last server ended.

        Raises:
            InvalidArgumentError: the credentials are malformed, or the cache cannot be used.
        """
        self.location = location
        self._store = open_store(location)
        self._cache = cache
        self._requests = requests
        self._downloads = Downloads()
        self._noting = threading.Lock()
        self.listers = ThreadPoolExecutor(_AT_A_TIME, "halimede-lists")
        self.fetchers = ThreadPoolExecutor(_AT_A_TIME, "halimede-fetches")
        self.away: AwayError | None = None
        place, self._lock = cache.open_place(location)
        self.directory = place / "models"
        self._partial = place / "partial"

    def close(self) -> None:
        """Let other servers use what has been fetched; when nothing is under way any more."""
        self.listers.shutdown()
        self.fetchers.shutdown()
        os.close(self._lock)

    def check(self) -> None:
        """Learn which models there are, and refuse what is no repository.

        Raises:
            InvalidArgumentError: it is a model itself.
            BucketError: it cannot be listed.
            OutOfMemoryError: the cache cannot be written.
        """
        with step(f"Listing {self.location.url}"):
            files = self._update_names()
        if "config.pbtxt" in files:
            above = self.location.url.rpartition("/")[0]
            fix = (
                f"name what is around it, '{above}'"
                if self.location.path
                else "move it below a name of its own"
            )
            raise InvalidArgumentError(f"'{self.location.url}' is a model, not a directory of models; {fix}")

    def update_names(self) -> None:
        """Learn which models there are.

        Raises:
            BucketError: it cannot be listed.
            OutOfMemoryError: the cache cannot be written.
        """
        self._update_names()

    def _update_names(self) -> set[str]:
        """Learn which models there are: the files that lie beside them."""
        path = self.location.path
        with self._tracking_outages():
            found = self._ask(
                "list", path, lambda: obstore.list_with_delimiter_async(self._store, path or None)
            )
            names = {prefix.rpartition("/")[2] for prefix in found["common_prefixes"]}
            if not names:
                self._check_gone(self.directory.iterdir())
            for name in names:
                check_key(self.location, name)
            with self._noting:
                for name in names:
                    (self.directory / name).mkdir(exist_ok=True)
                self._keep(names)
            return {str(each["path"]).rpartition("/")[2] for each in found["objects"]}

    def update_all(self) -> None:
        """Learn what there is of every model.

        Raises:
            BucketError: it cannot be listed.
            OutOfMemoryError: the cache cannot be written.
        """
        with self._tracking_outages():
            listings = self._list(self.location.path)
            if not listings:
                self._check_gone(self.directory.iterdir())
            with self._noting:
                for name, listing in listings.items():
                    self._note(name, listing)
                self._keep(listings.keys())

    def update(self, name: str, *, fetched_suffices: bool = False) -> None:
        """Learn what there is of a model.

        Args:
            name: the model.
            fetched_suffices: while the bucket is away, what was fetched earlier will do.

        Raises:
            BucketError: it cannot be listed.
            OutOfMemoryError: the cache cannot be written.
        """
        usable = fetched_suffices and self.has_fetched(name)
        if usable and self.away is not None:
            return
        try:
            with self._tracking_outages():
                listing = self._list(self.location.key(name)).get(name)
                if listing is None:
                    self._check_gone([self.directory / name])
                with self._noting:
                    if listing is None:
                        self._remove(self.directory / name)
                    else:
                        self._note(name, listing)
        except AwayError as error:
            if not usable:
                raise
            logger.warning("%s. '%s' is loaded as it was fetched earlier", error, name)

    def mark_used(self, name: str) -> None:
        """Note that a model has been in use until now."""
        try:
            os.utime(self.directory / name / RECORDS[1])
        except OSError as error:
            logger.debug("%s: %s", self.directory / name, error)

    def has_fetched(self, name: str) -> bool:
        """Whether a model can be loaded as it was fetched earlier."""
        return Fetched.read(self.directory / name).whole

    def has_any_fetched(self) -> bool:
        """Whether there is a model that can be loaded as it was fetched earlier."""
        return any(self.has_fetched(each.name) for each in self.directory.iterdir())

    @contextmanager
    def _tracking_outages(self) -> Iterator[None]:
        """Note whether the bucket answers."""
        try:
            yield
        except AwayError as error:
            self.away = error
            raise
        except OSError as error:
            raise disk_full(self.directory, error) from error
        self.away = None

    def _list(self, prefix: str) -> dict[str, Listing]:
        found = self._ask("list", prefix, lambda: obstore.list(self._store, prefix or None).collect_async())
        return group_by_model(self.location, found)

    def _ask(self, doing: str, key: str, request: Callable[[], Awaitable[T]]) -> T:
        """What the bucket answers.

        Raises:
            BucketError: it gives no answer.
            UnavailableError: the server is stopping.
        """
        try:
            return self._requests.run(request)
        except _FAILURES as error:
            raise failure(self.location, key, doing, error) from error

    def _check_gone(self, directories: Iterable[Path]) -> None:
        """Do not believe an empty listing of models that are known, unless one of their objects is gone too.

        Something between here and the bucket may answer with a page of its own.

        Raises:
            BucketError: the object is there, or cannot be asked for.
        """
        known = ((each.name, listing) for each in directories if (listing := Listing.read(each)) is not None)
        key = next((self.location.key(name, path) for name, listing in known for path in listing.objects), "")
        if key:
            try:
                self._ask("read", key, partial(obstore.head_async, self._store, key))
            except ReplacedError:
                return
            raise AwayError(
                f"cannot list {self.location.url} (bucket '{self.location.bucket}', key '{self.location.path}'): the "
                f"listing is empty, though there is an object '{key}'. {credentials_advice(self.location.service)}"
            )

    def _note(self, name: str, listing: Listing) -> None:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        if Listing.read(directory) != listing:
            listing.write(directory)

    def _keep(self, names: Iterable[str]) -> None:
        """Forget the models that the bucket has no more."""
        for directory in set(self.directory.iterdir()) - {self.directory / name for name in names}:
            self._remove(directory)

    def _remove(self, directory: Path) -> None:
        lock = self._cache.model_lock(directory)
        if lock.acquire(blocking=False):  # a fetch that is under way fails by itself
            shutil.rmtree(directory, ignore_errors=True)
            lock.release()

    def fetch(
        self,
        name: str,
        config_name: str,
        config_override: ConfigOverride | None,
        in_use: InUse,
        *,
        fetched_suffices: bool = False,
    ) -> bool:
        """Fetch what is to be loaded of a model and has changed: its configuration first, then what that selects.

        Args:
            name: the model.
            config_name: as `resolve` takes it.
            config_override: as `resolve` takes it.
            in_use: the models that are not removed to make room.
            fetched_suffices: while the bucket is away, what was fetched earlier will do.

        Returns:
            Whether that is what the bucket has, as far as it is known.

        Raises:
            BucketError: the bucket does not give it; the model is as it was.
            OutOfMemoryError: there is no room for it on the disk.
            UnavailableError: the server is stopping.
        """
        directory = self.directory / name
        with self._cache.model_lock(directory):
            listing = Listing.read(directory)
            if listing is None:  # it was removed after it was seen, which whoever loads it will tell
                return True
            usable = fetched_suffices and self.has_fetched(name)
            away = self.away if usable else None
            try:
                self._fetch(name, directory, listing, config_name, config_override, in_use, away)
            except AwayError as error:
                if not usable:
                    raise
                logger.warning("%s. '%s' is loaded as it was fetched earlier", error, name)
                return False
            except OSError as error:
                raise disk_full(directory, error) from error
            return True

    def _fetch(
        self,
        name: str,
        directory: Path,
        listing: Listing,
        config_name: str,
        config_override: ConfigOverride | None,
        in_use: InUse,
        away: AwayError | None,
    ) -> None:
        fetched = Fetched.read(directory)
        stage = partial(self._stage, name, in_use=in_use, away=away)
        configs = {path: each for path, each in listing.objects.items() if _configures(path)}
        staged = stage(fetched.missing(configs), progress=lambda _: None)
        named = f"configs/{config_name}.pbtxt"
        path = named if config_name and named in configs else "config.pbtxt"
        config = staged.get(path, directory / path) if path in configs else None
        policy = _version_policy(config, config_override)
        versions = select_versions(policy, listing.versions)
        wanted = {path: each for path, each in listing.objects.items() if _is_wanted(path, versions)}
        others = {path: each for path, each in fetched.missing(wanted).items() if path not in configs}
        size = sum(each.size for each in others.values())
        with step(f"Fetching '{name}'", size, of_bytes=True) as fetching:
            progress = Progress(name, self.location, len(others), fetching)
            staged |= stage(others, progress=progress.add)
        if others:
            progress.finish()
        if staged:
            fetched.replace(staged)
        for path, file in staged.items():
            target = directory / path
            _clear_way(directory, target)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
        for version in listing.directories:
            if int(version) in versions:
                (directory / version).mkdir(exist_ok=True)
        fetched.write(wanted)
        _remove_others(directory, wanted.keys(), {str(version) for version in versions})
        shutil.rmtree(self._partial / name, ignore_errors=True)

    def _stage(
        self,
        name: str,
        missing: Mapping[str, BucketObject],
        *,
        in_use: InUse,
        progress: Callable[[int], None],
        away: AwayError | None,
    ) -> dict[str, Path]:
        """Fetch files, though not into their place: where each of them is.

        Raises:
            HalimedeError: as `fetch`; `away` if that is given, and something is missing.
        """
        if not missing:
            return {}
        if away is not None:
            raise away
        place = self._partial / name
        place.mkdir(parents=True, exist_ok=True)
        files = {}
        for path, expected in missing.items():
            identity = f"{path}\0{expected.tag}\0{expected.size}"
            staged = place / sha256(identity.encode()).hexdigest()[:32]
            files[path] = Download(self.location.key(name, path), expected, staged)
        size = sum(each.size for each in missing.values())
        with self._cache.reserved(self.directory / name, size, in_use):
            fetch = partial(self._downloads.run, self._store, self.location, list(files.values()), progress)
            self._requests.run(fetch)
        return {path: file.path for path, file in files.items()}


def _configures(path: str) -> bool:
    first, slash, _ = path.partition("/")
    return first == "configs" if slash else path.endswith(".pbtxt")


def _is_wanted(path: str, versions: Iterable[int]) -> bool:
    """Whether a file is loaded with these versions: it is one of theirs, or all versions share it."""
    first, slash, _ = path.partition("/")
    number = version_number(first) if slash else None
    return number is None or number in versions


def _version_policy(path: Path | None, override: ConfigOverride | None) -> ModelVersionPolicy:
    """Which versions a configuration selects; the highest if there is none, or it makes no sense."""
    config = ModelConfig()
    with suppress(HalimedeError, OSError):  # whoever loads the model tells
        if override is not None:
            config = override.read()
        elif path is not None:
            config = read_config(path)
    if config.version_policy.WhichOneof("policy_choice") is None:
        config.version_policy.latest.num_versions = 1
    return config.version_policy


def _clear_way(directory: Path, target: Path) -> None:
    """Remove what lies where a file goes, if it cannot be replaced by one: a directory, or a file for its parent."""
    if target.is_dir():
        shutil.rmtree(target)
    for parent in target.relative_to(directory).parents:
        if (directory / parent).is_file():
            (directory / parent).unlink()


def _remove_others(directory: Path, wanted: Iterable[str], versions: set[str]) -> None:
    """Remove the files that are not wanted, and directories without any, other than those of versions."""
    keep = {directory / path for path in (*wanted, *RECORDS)}
    keep |= {directory / version for version in versions}
    keep |= {parent for path in keep for parent in path.parents}
    for place, directories, names in os.walk(directory, topdown=False):
        for name in names:
            if Path(place) / name not in keep and "__pycache__" not in place:
                (Path(place) / name).unlink(missing_ok=True)
        for name in directories:
            if Path(place) / name not in keep:
                with suppress(OSError):  # byte code that is there to stay
                    (Path(place) / name).rmdir()
