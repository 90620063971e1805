"""A repository of a bucket on disk: its models are directories, and what is to be loaded of them is fetched.

The directory of a model that nobody has loaded yet holds only the note of what the bucket has. What is fetched is
put in its place when all of it is there, so that a fetch that fails changes nothing.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

import obstore
import orjson

from halimede.config.model_config_pb2 import ModelConfig, ModelVersionPolicy
from halimede.config.parse import parse_json, read_config
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.core.versions import version_number
from halimede.repository.cloud.cache import Cache, InUse
from halimede.repository.cloud.downloads import Download, Downloads, disk_full
from halimede.repository.cloud.failures import BucketError, failure
from halimede.repository.cloud.listing import RECORDS, BucketObject, Listing, group_by_model, write_record
from halimede.repository.cloud.locations import Location, credentials_advice
from halimede.repository.cloud.progress import Progress
from halimede.repository.cloud.requests import Requests
from halimede.repository.cloud.stores import open_store
from halimede.repository.versions import select_versions

logger = logging.getLogger("halimede")


class Mirror:
    """A repository of a bucket. Any thread may use it; all methods block.

    Attributes:
        location: the repository.
        directory: its models.
    """

    def __init__(self, location: Location, cache: Cache, requests: Requests, downloads: Downloads) -> None:
        """A mirror that shows what was there when the last server ended.

        Raises:
            InvalidArgumentError: the credentials are malformed, or the cache cannot be used.
        """
        self.location = location
        self._store = open_store(location)
        self._cache = cache
        self._requests = requests
        self._downloads = downloads
        self._noting = threading.Lock()
        place, self._lock = cache.open_place(location)
        self.directory = place / "models"
        self._partial = place / "partial"

    def close(self) -> None:
        """Let other servers use what has been fetched."""
        os.close(self._lock)

    def check(self) -> None:
        """Learn which models there are, and refuse what is no repository.

        Raises:
            InvalidArgumentError: it is a model itself.
            BucketError: it cannot be listed.
        """
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
        """
        self._update_names()

    def _update_names(self) -> set[str]:
        """Learn which models there are: the files that lie beside them."""
        path = self.location.path
        try:
            found = self._requests.run(partial(obstore.list_with_delimiter_async, self._store, path or None))
        except _FAILURES as error:
            raise failure(self.location, path, "list", error) from error
        names = {prefix.rpartition("/")[2] for prefix in found["common_prefixes"]}
        if not names:
            self._check_gone(self.directory.iterdir())
        with self._noting:
            for name in names:
                (self.directory / name).mkdir(exist_ok=True)
            self._keep(names)
        return {str(each["path"]).rpartition("/")[2] for each in found["objects"]}

    def update_all(self) -> None:
        """Learn what there is of every model.

        Raises:
            BucketError: it cannot be listed.
        """
        listings = self._list(self.location.path)
        if not listings:
            self._check_gone(self.directory.iterdir())
        with self._noting:
            for name, listing in listings.items():
                self._note(name, listing)
            self._keep(listings.keys())

    def update(self, name: str) -> None:
        """Learn what there is of a model.

        Raises:
            BucketError: it cannot be listed.
        """
        listing = self._list(self.location.key(name)).get(name)
        if listing is None:
            self._check_gone([self.directory / name])
        with self._noting:
            if listing is None:
                self._remove(self.directory / name)
            else:
                self._note(name, listing)

    def _list(self, prefix: str) -> dict[str, Listing]:
        try:
            found = self._requests.run(lambda: obstore.list(self._store, prefix or None).collect_async())
        except _FAILURES as error:
            raise failure(self.location, prefix, "list", error) from error
        return group_by_model(self.location, found)

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
                self._requests.run(partial(obstore.head_async, self._store, key))
            except FileNotFoundError:
                return
            except _FAILURES as error:
                raise failure(self.location, key, "read", error) from error
            raise BucketError(
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

    def fetch(self, name: str, config_name: str, config_override: str | None, in_use: InUse) -> None:
        """Fetch what is to be loaded of a model and has changed: its configuration first, then what that selects.

        Args:
            name: the model.
            config_name: as `resolve` takes it.
            config_override: as `resolve` takes it.
            in_use: the models that are not removed to make room.

        Raises:
            BucketError: the bucket does not give it; the model is as it was.
            OutOfMemoryError: there is no room for it on the disk.
            UnavailableError: the server is stopping.
        """
        directory = self.directory / name
        with self._cache.model_lock(directory):
            listing = Listing.read(directory)
            if listing is not None:  # else it was removed after it was seen, which whoever loads it will tell
                try:
                    self._fetch(name, directory, listing, config_name, config_override, in_use)
                except OSError as error:
                    raise disk_full(directory, error) from error

    def _fetch(
        self,
        name: str,
        directory: Path,
        listing: Listing,
        config_name: str,
        config_override: str | None,
        in_use: InUse,
    ) -> None:
        fetched = _Fetched.read(directory)
        configs = {path: each for path, each in listing.objects.items() if _configures(path)}
        staged = self._stage(name, fetched.missing(configs), in_use, lambda _: None)
        named = f"configs/{config_name}.pbtxt"
        path = named if config_name and named in configs else "config.pbtxt"
        config = staged.get(path, directory / path) if path in configs else None
        policy = _version_policy(config, config_override)
        versions = select_versions(policy, listing.versions)
        wanted = {path: each for path, each in listing.objects.items() if _is_wanted(path, versions)}
        others = {path: each for path, each in fetched.missing(wanted).items() if path not in configs}
        progress = Progress(name, self.location, len(others), sum(each.size for each in others.values()))
        staged |= self._stage(name, others, in_use, progress.add)
        if others:
            progress.finish()
        fetched.forget(staged.keys())
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
        in_use: InUse,
        progress: Callable[[int], None],
    ) -> dict[str, Path]:
        """Fetch files, though not into their place: where each of them is."""
        if not missing:
            return {}
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


_FAILURES = (obstore.exceptions.BaseError, OSError, ValueError)


class _Fetched:
    """What has been fetched of a model."""

    def __init__(self, directory: Path, objects: Mapping[str, BucketObject]) -> None:
        self._directory = directory
        self._objects = objects

    @classmethod
    def read(cls, directory: Path) -> "_Fetched":
        """What was noted in its directory."""
        objects = {}
        with suppress(FileNotFoundError, ValueError):
            document = orjson.loads((directory / RECORDS[1]).read_bytes())
            objects = {path: BucketObject(size, tag) for path, (size, tag) in document.items()}
        return cls(directory, objects)

    def missing(self, wanted: Mapping[str, BucketObject]) -> dict[str, BucketObject]:
        """What is not there, or was replaced in the bucket."""
        return {path: each for path, each in wanted.items() if not self._has(path, each)}

    def _has(self, path: str, wanted: BucketObject) -> bool:
        try:
            size = (self._directory / path).stat().st_size
        except OSError:
            return False
        return self._objects.get(path) == wanted and size == wanted.size

    def forget(self, paths: Iterable[str]) -> None:
        """Note that some files are about to be replaced."""
        self.write({path: each for path, each in self._objects.items() if path not in set(paths)})

    def write(self, objects: Mapping[str, BucketObject]) -> None:
        """Note what is there now, and that it is used."""
        document = {path: [each.size, each.tag] for path, each in objects.items()}
        write_record(self._directory / RECORDS[1], document)


def _configures(path: str) -> bool:
    first, slash, _ = path.partition("/")
    return first == "configs" if slash else path.endswith(".pbtxt")


def _is_wanted(path: str, versions: Iterable[int]) -> bool:
    """Whether a file is loaded with these versions: it is one of theirs, or all versions share it."""
    first, slash, _ = path.partition("/")
    number = version_number(first) if slash else None
    return number is None or number in versions


def _version_policy(path: Path | None, override: str | None) -> ModelVersionPolicy:
    """Which versions a configuration selects; the highest if there is none, or it makes no sense."""
    config = ModelConfig()
    with suppress(HalimedeError, OSError):  # whoever loads the model tells
        if override is not None:
            config = parse_json(override)
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
