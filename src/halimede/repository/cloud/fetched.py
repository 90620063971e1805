"""What has been fetched of a model: a note beside its files, which tells whether they are still as they came."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from halimede.repository.cloud.listing import RECORDS, BucketObject, write_record


class Fetched:
    """The files in the directory of a model, as far as they came from the bucket."""

    def __init__(self, directory: Path, objects: Mapping[str, tuple[BucketObject, int] | None]) -> None:
        """Files by path: the object and the file's time of modification, None while it is being replaced."""
        self._directory = directory
        self._objects = objects

    @classmethod
    def read(cls, directory: Path) -> "Fetched":
        """What was noted in a directory: nothing, if that cannot be read."""
        try:
            document = orjson.loads((directory / RECORDS[1]).read_bytes())
            objects = {
                path: noted and (BucketObject(*noted[:2]), noted[2]) for path, noted in document.items()
            }
        except (OSError, ValueError, TypeError, AttributeError, IndexError):
            objects = {}
        return cls(directory, objects)

    def missing(self, wanted: Mapping[str, BucketObject]) -> dict[str, BucketObject]:
        """What is not there, was replaced in the bucket, or was changed on disk."""
        return {path: each for path, each in wanted.items() if not self._has(path, each)}

    @property
    def whole(self) -> bool:
        """Whether there is all that was to be fetched last."""
        return bool(self._objects) and all(
            noted is not None and self._has(path, noted[0]) for path, noted in self._objects.items()
        )

    def _has(self, path: str, wanted: BucketObject) -> bool:
        try:
            status = (self._directory / path).stat()
        except OSError:
            return False
        return status.st_size == wanted.size and self._objects.get(path) == (wanted, status.st_mtime_ns)

    def replace(self, paths: Iterable[str]) -> None:
        """Note that some files are about to be replaced."""
        self._write({**self._objects, **dict.fromkeys(paths)})

    def write(self, objects: Mapping[str, BucketObject]) -> None:
        """Note what is there now, and that it is used."""
        modified = {path: (self._directory / path).stat().st_mtime_ns for path in objects}
        self._write({path: (each, modified[path]) for path, each in objects.items()})

    def _write(self, objects: Mapping[str, tuple[BucketObject, int] | None]) -> None:
        document = {
            path: noted and [noted[0].size, noted[0].tag, noted[1]] for path, noted in objects.items()
        }
        write_record(self._directory / RECORDS[1], document)
